"""A training shared by two processes equals that of one, and ends when either of them dies."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.small_training import small_spec
from torch import nn

from trainables.data.store.spec import StoreSpec
from trainables.mistakes import Mistakes
from trainables.spec import TrialSpec
from trainables.training.cross_validation import CrossValidation, begin
from trainables.training.distributed import RankLost
from trainables.training.distributed.training import FirstRank
from trainables.training.epoch_training import Diverged
from trainables.training.train import Training

CPU = torch.device("cpu")
TWO = (CPU, CPU)
PROGRAM = "trainables.training.distributed.other_rank"


class FailsBeside(nn.Module):
    """A user-defined network with batch normalisation that fails in every process except the first."""

    features = 4

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if dist.is_initialized() and dist.get_rank():
            raise MemoryError("no memory left here")
        maps: torch.Tensor = self.layers(images)
        return maps


@pytest.fixture
def spec(images: StoreSpec, tmp_path: Path) -> TrialSpec:
    """Return a spec with odd batches of 15 images, whose backbone learns from the second epoch on."""
    spec = small_spec(images, tmp_path, epochs=3)
    training = replace(spec.training, batch_size=15, warmup_epochs=1)
    return replace(
        spec, training=training, train_classes=images.class_names[:4], validation_classes=images.class_names[4:]
    )


@pytest.fixture
def double() -> Iterator[None]:
    """Train in float64, where rounding hides no errors."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """Check that a test leaves no process and no process group."""
    yield
    gc.collect()
    assert wait_for(lambda: not children(os.getpid()), 30)
    assert not dist.is_initialized()


def children(parent: int) -> list[int]:
    """Return the ids of the other ranks' processes, children of ``parent``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, status = (folder / "cmdline").read_text(), (folder / "stat").read_text()
        except OSError:  # it has ended
            continue
        if PROGRAM in command.split("\0") and int(status.rpartition(")")[2].split()[1]) == parent:
            found.append(int(folder.name))
    return found


def wait_for(done: Callable[[], bool], patience_s: float) -> bool:
    end = time.monotonic() + patience_s
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def trained(training: Training | CrossValidation) -> Any:
    while not training.finished:
        training.run_epoch()
    return training


def assert_equal_trainings(found: Any, expected: Any, tolerance: float) -> None:
    assert len(found.records) == len(expected.records)
    for record, other in zip(found.records, expected.records):
        assert record["loss"] == pytest.approx(other["loss"], abs=tolerance)
        assert record["metrics"] == pytest.approx(other["metrics"], abs=tolerance)
        assert record["batches"] == other["batches"]
        assert record.get("used") == other.get("used")
    for part in ("model", "loss"):
        for (name, value), other in zip(
            getattr(found, part).state_dict().items(), getattr(expected, part).state_dict().values(), strict=True
        ):
            torch.testing.assert_close(
                value, other, rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
            )


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("loss", "hyperparameters", "freeze_bn", "memory"),
    [
        ("mpa", {"proxies_per_class": 2}, False, 0.0),
        pytest.param("triplet", {"mining": "uniform"}, False, 0.0, marks=pytest.mark.slow),
        ("triplet", {"mining": "semi_hard"}, False, 0.6),
        pytest.param("pnp", {}, True, 0.0, marks=pytest.mark.slow),
        pytest.param("pnp", {}, "statistics", 0.0, marks=pytest.mark.slow),
    ],
    ids=["proxies", "random mining", "memory", "ranking, frozen batch normalisation", "ranking, frozen statistics"],
)
def test_two_processes_train_as_one(
    spec: TrialSpec, loss: str, hyperparameters: dict[str, Any], freeze_bn: bool | str, memory: float
) -> None:
    """Losses, metrics, used pairs, weights, statistics and proxies agree after three epochs."""
    model = replace(spec.model, freeze_bn=freeze_bn)
    spec = replace(spec, training=replace(spec.training, cross_batch_memory=memory))
    spec = replace(spec, loss=loss, hyperparameters=hyperparameters, model=model)
    alone = trained(Training(replace(spec, directory=f"{spec.directory}-alone"), CPU))
    together = FirstRank(spec, TWO)
    together.run_epoch()
    assert len(children(os.getpid())) == 1
    assert_equal_trainings(trained(together), alone, 1e-9)
    moved = (
        alone.model.state_dict()["backbone.blocks.0.weight"]
        - Training(replace(spec, directory=f"{spec.directory}-fresh"), CPU).model.state_dict()[
            "backbone.blocks.0.weight"
        ]
    )
    assert moved.abs().max() > 1e-4, "the backbone learned"
    assert sorted(path.name for path in Path(spec.directory).iterdir()) == ["attempt-1", "trial.json"]


@pytest.mark.slow
def test_in_float32_they_differ_by_rounding(spec: TrialSpec) -> None:
    spec = replace(spec, training=replace(spec.training, epochs=1))
    alone = trained(Training(replace(spec, directory=f"{spec.directory}-alone"), CPU))
    (record,) = trained(begin(spec, *TWO)).records
    assert record["loss"] == pytest.approx(alone.records[0]["loss"], rel=1e-5)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("memory", [pytest.param(0.0, marks=pytest.mark.slow), 0.6])
def test_a_resumed_one_goes_on_equal(spec: TrialSpec, memory: float) -> None:
    """Begun by two processes, resumed by one, finished by two: all ranks get the optimizer's state."""
    if memory:
        training = replace(spec.training, cross_batch_memory=memory, memory_warmup_epochs=0)
        spec = replace(spec, loss="multi_similarity", hyperparameters={}, training=training)
    alone = trained(Training(replace(spec, directory=f"{spec.directory}-alone"), CPU))
    for devices in (TWO, (CPU,)):
        training = begin(spec, *devices)
        training.run_epoch()
        training.wait_for_checkpoints()
        del training
    last = FirstRank(spec, TWO)
    assert len(last.records) == 2
    assert_equal_trainings(trained(last), alone, 1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_folds_are_shared_too(spec: TrialSpec) -> None:
    names = spec.train_classes
    training = replace(spec.training, epochs=1, warmup_epochs=0, batch_size=10)
    spec = replace(spec, training=training, folds=(names[:2], names[2:]), validation_classes=())
    alone = trained(begin(replace(spec, directory=f"{spec.directory}-alone"), CPU))
    together = trained(begin(spec, *TWO))
    for record, other in zip(together.records, alone.records, strict=True):
        assert record["metrics"] == pytest.approx(other["metrics"], abs=1e-9)
        assert record["loss"] == pytest.approx(other["loss"], abs=1e-9)


def test_a_killed_rank_ends_the_training_at_once(spec: TrialSpec) -> None:
    training = FirstRank(spec, TWO)
    training.run_epoch()
    training.loss.register_forward_hook(lambda *_: os.kill(children(os.getpid())[0], signal.SIGKILL))
    start = time.monotonic()
    with pytest.raises(RankLost, match="The process of rank 1 of 2 died"):
        training.run_epoch()
    assert time.monotonic() - start < 60
    assert len(training.records) == 1, "an interrupted epoch does not count"


@pytest.mark.slow
def test_a_rank_that_was_killed_between_epochs_is_noticed(spec: TrialSpec) -> None:
    training = FirstRank(spec, TWO)
    training.run_epoch()
    os.kill(children(os.getpid())[0], signal.SIGKILL)
    with pytest.raises(RankLost):
        training.run_epoch()


@pytest.mark.slow
def test_a_rank_that_stopped_is_waited_for_so_long_and_not_longer(spec: TrialSpec) -> None:
    training = FirstRank(spec, TWO)
    training.run_epoch()
    dist.set_timeout(timedelta(seconds=5))  # instead of ten minutes
    os.kill(children(os.getpid())[0], signal.SIGSTOP)
    with pytest.raises(RankLost, match=r"does not answer: .*Timed out"):
        training.run_epoch()


def test_what_another_rank_raises_ends_the_training_under_its_name(spec: TrialSpec) -> None:
    model = replace(spec.model, backbone=f"{__name__}:FailsBeside")
    with pytest.raises(MemoryError, match="no memory left here") as caught:
        FirstRank(replace(spec, model=model), TWO).run_epoch()
    assert "on rank 1:\nTraceback" in str(caught.value.__cause__)


def test_a_diverged_training_ends_all(spec: TrialSpec) -> None:
    training = FirstRank(replace(spec, training=replace(spec.training, lr=1e30, clip_grad=None, warmup_epochs=0)), TWO)
    with pytest.raises(Diverged):
        trained(training)


def test_a_training_that_is_forgotten_ends_the_others(spec: TrialSpec) -> None:
    """A pruned trial is dropped this way."""
    training = FirstRank(spec, TWO)
    training.run_epoch()
    assert children(os.getpid())
    training.wait_for_checkpoints()
    del training


def test_a_batch_of_fewer_images_than_processes_is_refused(spec: TrialSpec) -> None:
    spec = replace(spec, training=replace(spec.training, batch_size=2, images_per_class=1))
    with pytest.raises(Mistakes, match="gpus_per_trial is 3 and a batch has 2 images"):
        FirstRank(spec, (CPU, CPU, CPU)).run_epoch()


@pytest.mark.slow
def test_who_ends_with_rank_0_leaves_nobody(spec: TrialSpec, tmp_path: Path) -> None:
    """Ray kills workers this way."""
    program = """
import pickle, sys, torch
from pathlib import Path
from trainables.training.distributed.training import FirstRank
training = FirstRank(pickle.loads(Path(sys.argv[1]).read_bytes()), [torch.device("cpu")] * 2)
training.run_epoch()
print("trained", flush=True)
sys.stdin.read()
"""
    (tmp_path / "spec").write_bytes(pickle.dumps(spec))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path / "spec")]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "trained\n"
            (other,) = children(worker.pid)
        finally:
            worker.kill()
    assert wait_for(lambda: not Path(f"/proc/{other}").exists(), 20)
