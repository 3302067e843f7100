"""Checkpoints written during the next epoch, while trials are killed, pruned or out of disk space."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from support.forks import forked
from support.small_training import run, small_spec, with_training, worker_of

from trainables.common.files import write_whole
from trainables.common.storage import AnyPath, StorageFailure
from trainables.data.store.store_spec import StoreSpec
from trainables.inference.model_files import read_tensors
from trainables.models import ModelConfig
from trainables.training import checkpoints
from trainables.training.checkpoints import parsed_state
from trainables.training.cross_validation import begin
from trainables.training.spec import EpochRecord, NoSpace, TrialSpec
from trainables.training.train import Training, train

CPU = torch.device("cpu")
EPOCHS = 3
Write = Callable[[IO[bytes]], object]


@pytest.fixture
def spec(images: StoreSpec, tmp_path: Path) -> TrialSpec:
    return small_spec(images, tmp_path, epochs=EPOCHS)


@pytest.fixture(scope="module")
def undisturbed(images: StoreSpec, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Train the same spec without interruption."""
    return run(small_spec(images, tmp_path_factory.mktemp("undisturbed"), epochs=EPOCHS))


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return an event that pending writes wait for."""
    may_write = threading.Event()

    def late(path: AnyPath, write: Write) -> None:
        assert may_write.wait(60)
        write_whole(path, write)

    monkeypatch.setattr(checkpoints, "write_whole", late)
    yield may_write
    may_write.set()


def files(spec: TrialSpec) -> set[str]:
    return {str(path.relative_to(spec.directory)) for path in Path(spec.directory).rglob("attempt-*/*.*")}


def lasting(records: list[EpochRecord]) -> list[Any]:
    return [(record["epoch"], record["loss"]) for record in records]


def assert_equal_models(one: Path, other: Path) -> None:
    torch.testing.assert_close(named_tensors(one), named_tensors(other), rtol=0, atol=0)


def named_tensors(path: Path) -> dict[str, torch.Tensor]:
    if path.suffix == ".safetensors":
        return read_tensors(path)[0]
    state = parsed_state(path.read_bytes())
    return {f"{part}.{name}": value for part in ("model", "loss") for name, value in state[part].items()}


def test_an_epoch_does_not_wait_and_what_is_written_is_of_its_end(spec: TrialSpec, writing: threading.Event) -> None:
    training = Training(spec, CPU)
    training.run_epoch()
    assert files(spec) == set()
    training._train(2)  # the weights change meanwhile
    writing.set()
    training.wait_for_checkpoints()
    assert files(spec) == {"attempt-1/best.safetensors", "attempt-1/last.pt"}
    alone = run(replace(spec, directory=f"{spec.directory}-alone"), 1)
    for name in ("best.safetensors", "last.pt"):
        assert_equal_models(*(Path(run.spec.directory) / "attempt-1" / name for run in (training, alone)))
    last = parsed_state((Path(spec.directory) / "attempt-1" / "last.pt").read_bytes())
    assert lasting(last["records"]) == lasting(alone.records)


def last_epoch(spec: TrialSpec) -> Callable[[], Any]:
    return Training(with_training(spec, epochs=1), CPU).run_epoch


def fold(spec: TrialSpec) -> Callable[[], Any]:
    names = spec.train_classes
    return begin(replace(with_training(spec, epochs=1), folds=(names[:2], names[2:4], names[4:])), CPU).run_epoch


def stopped(spec: TrialSpec) -> Callable[[], Any]:
    epochs = train(spec)
    next(epochs)
    return epochs.close  # type: ignore[attr-defined, no-any-return]


def ended(spec: TrialSpec) -> Callable[[], Any]:
    worker = worker_of(spec)
    worker.step()
    return worker.end


def replaced(spec: TrialSpec) -> Callable[[], Any]:
    worker = worker_of(spec)
    worker.step()
    return lambda: worker.assign(replace(spec, directory=f"{spec.directory}-next"))


@pytest.mark.parametrize("way", [last_epoch, fold, stopped, ended, replaced])
def test_a_training_that_is_done_or_ended_has_written_everything(
    spec: TrialSpec, way: Callable[[TrialSpec], Callable[[], Any]], writing: threading.Event
) -> None:
    end = way(spec)
    threading.Timer(0.05, writing.set).start()
    end()
    expected = ("fold-1/attempt-1", "records.json") if way is fold else ("attempt-1", "last.pt")
    assert files(spec) == {f"{expected[0]}/best.safetensors", "/".join(expected)}


def refuse(path: AnyPath, write: Write) -> None:
    raise StorageFailure(path, OSError(28, "No space left on device"))


def test_a_full_disk_fails_no_training_and_hinders_no_other(spec: TrialSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last epoch reports it, others in the next one; of a trial that the driver has ended, the log alone."""
    worker = worker_of(with_training(spec, epochs=1))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_whole", refuse)
        news = worker.step()
        assert isinstance(news, NoSpace)
        assert f"There is no space left for {spec.directory}, where " in news.text
        worker.assign(spec)
        assert len(worker.step().records) == 1
        assert isinstance(worker.step(), NoSpace)
        pruned = replace(spec, directory=f"{spec.directory}-pruned")
        worker.assign(pruned)
        worker.step()
        worker.assign(replace(spec, directory=f"{spec.directory}-next"))
    assert "No space left" in next((Path(pruned.directory) / "logs").iterdir()).read_text()
    assert len(worker.step().records) == 1
    worker.end()


def killed_while_it_writes(parent: Connection, path: AnyPath, write: Write) -> None:
    def write_and_wait(file: IO[bytes]) -> None:
        write(file)
        file.flush()
        parent.send("in the middle")
        parent.recv()

    write_whole(path, write_and_wait)


@pytest.mark.parametrize("file", ["best.safetensors", "last.pt"])
def test_a_kill_in_the_middle_of_writing_loses_the_epoch_before(
    file: str, spec: TrialSpec, undisturbed: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that writes a file of the second epoch is killed. Resuming gives the same training."""
    written: list[AnyPath] = []

    def writing(path: AnyPath, write: Write) -> None:
        written.append(path)
        if path.name != file or written.count(path) < 2:
            write_whole(path, write)
            return
        process, connection = forked(killed_while_it_writes, path, write)
        assert connection.recv() == "in the middle"
        process.kill()
        process.join()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_whole", writing)
        with pytest.raises(KeyboardInterrupt):
            run(spec, 2)
    assert len(list(Path(spec.directory).rglob(f".{file}.*.draft"))) == 1
    resumed = run(spec)
    assert lasting(resumed.records) == lasting(undisturbed.records)
    kept = [f"attempt-{attempt}/best.safetensors" for attempt in (1, 2, 2)]
    assert [record["checkpoint"] for record in resumed.records] == kept
    for name in ("best.safetensors", "last.pt"):
        ours, theirs = Path(spec.directory, "attempt-2", name), Path(undisturbed.spec.directory, "attempt-1", name)
        assert_equal_models(ours, theirs)


# Attempts on one worker.


def test_attempts_replace_one_another(spec: TrialSpec) -> None:
    broken = replace(spec, directory=f"{spec.directory}-broken", model=ModelConfig(weights="nowhere.pth"))
    other = replace(spec, directory=f"{spec.directory}-other", seed=8)
    worker = worker_of(broken)
    assert worker.step().cause == "CODE_ERROR"
    worker.assign(spec)
    (record,) = worker.step().records
    assert record["epoch"] == 1
    worker.assign(other)  # as after pruning
    news = [worker.step() for _ in range(EPOCHS)]
    assert [[record["epoch"] for record in entry.records] for entry in news] == [[1], [2], [3]]
    assert [entry.finished for entry in news] == [False, False, True]
    worker.end()
