"""A trial's log holds its failure, and errors in logging do not fail the trial."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.own_parts import Greys
from support.small_training import small_spec, worker_of

from trainables.data.store.store_spec import StoreSpec
from trainables.training.attempt import read_log
from trainables.training.spec import TrialSpec


@pytest.fixture
def spec(tmp_path: Path) -> TrialSpec:
    dataset = Greys()
    names = tuple(dataset.classes())
    images = StoreSpec(dataset=dataset, class_names=names, short_side=18, cache=str(tmp_path / "cache"))
    spec = small_spec(images, tmp_path, epochs=2)
    return replace(
        spec, loss="support.own_parts:Pull", hyperparameters={"power": 1.5},
        training=replace(spec.training, batch_size=10), train_classes=names[:6], validation_classes=names[6:],
    )  # fmt: skip


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
