"""A trial's logs hold epochs, messages and failures, and errors in logging do not fail the trial."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.own_parts import Greys
from support.small_training import small_spec, worker_of

from trainables.data.store.store_spec import StoreSpec
from trainables.training.attempt import read_log
from trainables.training.spec import TrialSpec


def spec_in(directory: str, cache: Path) -> TrialSpec:
    dataset = Greys()
    names = tuple(dataset.classes())
    images = StoreSpec(dataset=dataset, class_names=names, short_side=18, cache=str(cache))
    spec = small_spec(images, cache, epochs=2)
    return replace(
        spec, loss="support.own_parts:Pull", hyperparameters={"power": 1.5}, directory=directory,
        training=replace(spec.training, batch_size=10), train_classes=names[:6], validation_classes=names[6:],
    )  # fmt: skip


def test_attempts_are_read_one_after_the_other(tmp_path: Path) -> None:
    """From a store that has no folders."""
    directory = f"memory:/{tmp_path}/trials/0001"
    assert read_log(directory) == ""
    spec = spec_in(directory, tmp_path / "cache")
    first = worker_of(spec)
    first.step()
    assert "epoch 1: loss " in read_log(directory)  # before it ends
    first.end()
    second = worker_of(spec)
    assert [len(second.step().records) for _ in range(2)] == [1, 1]
    second.end()
    said = [line[20:] for line in read_log(directory).splitlines()]
    assert [line.split(" on ")[0] for line in said if line.startswith("Training")] == [
        "Training begins",
        "Training was stopped before its last epoch.",
        "Training begins",
        "Training is done.",
    ]
    assert sum(line.startswith("epoch ") and ", map_at_r " in line and line.endswith(" s") for line in said) == 2
    assert "INFO trainables.training.train: Resuming after epoch 1." in said
    assert "loss support.own_parts:Pull, {'power': 1.5}, seed 7, 2 epochs" in said


@pytest.fixture
def spec(tmp_path: Path) -> TrialSpec:
    return spec_in(str(tmp_path / "trial"), tmp_path / "cache")


def test_a_failure_is_written_whole(spec: TrialSpec) -> None:
    failing = replace(spec, loss="support.own_parts:Raising", hyperparameters={})
    assert worker_of(failing).step().cause == "CODE_ERROR"
    said = read_log(spec.directory)
    assert "Training failed.\nTraceback (most recent call last):" in said
    assert "IndexError: out of sorts" in said
    assert "stopped" not in said


def test_a_log_that_cannot_be_written_fails_nothing(spec: TrialSpec, caplog: pytest.LogCaptureFixture) -> None:
    Path(spec.directory).mkdir()
    Path(spec.directory, "logs").touch()  # a file where the folder should be
    trial = worker_of(spec)
    results = [trial.step() for _ in range(2)]
    trial.end()
    assert results[-1].finished
    assert len([record for record in caplog.records if "cannot be written" in record.getMessage()]) == 1
