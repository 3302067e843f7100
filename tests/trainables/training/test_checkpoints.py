"""Checkpoints in any store, written during the next epoch, of trials that are killed or pruned, and of folds."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from support.forks import forked
from support.small_training import run, small_spec, with_training, worker_of
from support.stores import PLACES, place

from search.engines.ray_engine import probe_file
from trainables.common.files import as_path, write_json, write_whole
from trainables.common.storage import AnyPath, StorageFailure
from trainables.data.store.store_spec import StoreSpec
from trainables.inference.model_files import read_tensors
from trainables.training import checkpoints
from trainables.training.checkpoints import Checkpoints, finished_records, forget_last, parsed_state
from trainables.training.cross_validation import CrossValidation, begin
from trainables.training.spec import EpochRecord, NoSpace, TrialSpec
from trainables.training.train import Training, train


@pytest.fixture(params=PLACES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with place(request.param, tmp_path) as url:
        yield f"{url}/models/loss@final/0001"


def saved(checkpoints: Checkpoints, last: dict[str, Any], best: dict[str, Any] | None = None) -> None:
    checkpoints.save(last, best)
    checkpoints.wait()


def test_an_attempt_goes_on_from_the_last_one(address: str) -> None:
    first = Checkpoints(address, "digest")
    assert first.load_last() is None
    second = Checkpoints(address, "digest")  # the first one has written nothing, and keeps its number
    first.save({"epoch": 1})
    saved(first, {"epoch": 2}, {"weights": torch.arange(3)})
    assert first.best == "attempt-1/best.safetensors"
    state = second.load_last()
    assert state is not None
    assert state["epoch"] == 2
    assert second.best == "attempt-2/best.safetensors"
    saved(first, {"epoch": 9})  # believed dead but still writing
    saved(second, {"epoch": 3}, {"weights": torch.arange(4)})
    third = Checkpoints(address, "digest").load_last()
    assert third is not None
    assert third["epoch"] == 3
    assert Checkpoints(address, "another").load_last() is None
    for attempt, count in ((1, 3), (2, 4)):
        best, _ = read_tensors(as_path(f"{address}/attempt-{attempt}/best.safetensors"))
        assert torch.equal(best["weights"], torch.arange(count))


def test_what_only_an_unfinished_training_needs_goes(address: str) -> None:
    for fold in (1, 2):
        checkpoints = Checkpoints(f"{address}/fold-{fold}", "digest")
        saved(checkpoints, {}, {})
    checkpoints.close([{"epoch": 1}])
    assert finished_records(f"{address}/fold-1", "digest") is None
    assert finished_records(f"{address}/fold-2", "digest") == [{"epoch": 1}]
    forget_last(address)
    assert {path.name for path in as_path(address).rglob("attempt-*/*")} == {"best.safetensors"}


def test_what_a_worker_still_writes_after_that_does_not_stay(address: str) -> None:
    checkpoints = Checkpoints(address, "digest")
    forget_last(address)
    saved(checkpoints, {}, {"weights": torch.arange(3)})
    assert {path.name for path in as_path(address).rglob("attempt-*/*")} == {"best.safetensors"}
    checkpoints.close([{"epoch": 1}])
    assert {path.name for path in as_path(address).rglob("attempt-*/*")} == {"best.safetensors"}


def test_a_file_is_written_whole_or_not_at_all(address: str) -> None:
    with probe_file(address) as probe:
        assert as_path(probe).exists()
    assert not as_path(probe).exists()
    file = as_path(f"{address}/value.json")
    write_json(file, {"value": 1})

    def fail(opened: Any) -> None:
        opened.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(file, fail)
    assert file.read_text() == '{\n  "value": 1\n}\n'
    assert [path.name for path in file.parent.glob("*")] == ["value.json"]


# Checkpoints written during the next epoch.

CPU = torch.device("cpu")
EPOCHS = 3
Write = Callable[[IO[bytes]], object]


@pytest.fixture
def spec(images: StoreSpec, tmp_path: Path) -> TrialSpec:
    return small_spec(images, tmp_path, epochs=EPOCHS)


@pytest.fixture(scope="module")
def undisturbed(images: StoreSpec, tmp_path_factory: pytest.TempPathFactory) -> Training:
    return run(small_spec(images, tmp_path_factory.mktemp("undisturbed"), epochs=EPOCHS))


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
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
    """Return the parts of records that do not depend on time and attempt."""
    return [(record.get("fold"), record["epoch"], record["loss"], record["metrics"]) for record in records]


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


# A cross-validation trains the folds one after the other, with any interruptions.

OF_FOLD = 2


@pytest.fixture
def folded(images: StoreSpec, tmp_path: Path) -> TrialSpec:
    return make_spec(images, tmp_path)


def make_spec(images: StoreSpec, directory: Path) -> TrialSpec:
    names = images.class_names
    return small_spec(images, directory, epochs=OF_FOLD, folds=(names[:2], (names[2], names[5])))


@pytest.fixture(scope="module")
def expected(images: StoreSpec, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folded = make_spec(images, tmp_path_factory.mktemp("alone"))
    records = [{**record, "fold": fold} for fold in (1, 2) for record in train(folded.of_fold(fold))]
    return lasting(records)


def test_a_fold_validates_while_the_others_train(folded: TrialSpec) -> None:
    folds = [folded.of_fold(fold) for fold in (1, 2)]
    for fold, validation in zip(folds, folded.folds, strict=True):
        assert fold.validation_classes == validation
        assert fold.train_classes == tuple(name for name in folded.train_classes if name not in validation)
    assert len({fold.seed for fold in folds}) == len({fold.directory for fold in folds}) == 2


def test_a_cross_validation_that_dies_after_each_epoch_is_its_folds(folded: TrialSpec, expected: list[Any]) -> None:
    """Later attempts have the records of the earlier ones."""
    attempts: list[list[EpochRecord]] = []
    while not attempts or len(attempts[-1]) < 2 * OF_FOLD:
        assert begin(folded, CPU).records == (attempts[-1] if attempts else [])
        attempt = run(folded, 1)
        assert isinstance(attempt, CrossValidation)
        attempts.append(attempt.records)
    assert attempt.finished
    assert len(attempts) == 2 * OF_FOLD
    assert lasting(attempt.records) == expected
    assert begin(folded, CPU).records == attempt.records


def test_a_death_between_the_last_epoch_and_closing_loses_nothing(folded: TrialSpec, expected: list[Any]) -> None:
    run(folded.of_fold(1))
    assert lasting(begin(folded, CPU).records) == expected[:OF_FOLD]
    assert lasting(run(folded).records) == expected


def test_every_fold_keeps_its_best_model_and_a_done_one_nothing_to_go_on_from(folded: TrialSpec) -> None:
    running = run(folded, OF_FOLD + 1)
    directory = Path(folded.directory)
    assert [path.parts[-3] for path in directory.rglob("last.pt")] == ["fold-2"]
    for fold, record in {record["fold"]: record for record in running.records if record["checkpoint"]}.items():
        assert record["checkpoint"] == f"fold-{fold}/attempt-1/best.safetensors"
        origin = read_tensors(directory / record["checkpoint"])[1]["origin"]
        assert (origin["epoch"], origin["seed"]) == (record["epoch"], folded.of_fold(fold).seed)
    assert begin(replace(folded, seed=8), CPU).records == []
    assert all(before["end"] <= after["start"] for before, after in pairwise(running.records))
    forget_last(folded.directory)
    assert {path.name for path in directory.rglob("*.*")} == {"best.safetensors", "trial.json"}


def test_what_a_killed_attempt_at_a_fold_was_writing_goes_with_the_end(folded: TrialSpec) -> None:
    """The last attempt's writer may still be running (found by `make soak`)."""
    drafts = [Path(folded.directory) / f"fold-2/attempt-{attempt}" / ".last.pt.1-ab.draft" for attempt in (1, 2)]
    for draft in drafts:
        draft.parent.mkdir(parents=True)
        draft.write_bytes(b"half")
    forget_last(folded.directory)
    assert [draft.exists() for draft in drafts] == [False, True]
