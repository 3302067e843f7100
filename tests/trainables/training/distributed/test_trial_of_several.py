"""A Ray Tune trial on several devices reports like one on one device, and dies with any of its ranks."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.small_training import drawn_images, small_spec

from trainables.training.distributed import RankLost
from trainables.training.distributed.training import FirstRank
from trainables.trial import TrainingTrial

CPU = torch.device("cpu")


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[TrainingTrial]:
    """Return a trial on two devices, without its actor."""
    trial = TrainingTrial.__new__(TrainingTrial)
    trial._devices, trial._attempts = [CPU, CPU], {}
    spec = small_spec(drawn_images(tmp_path), tmp_path, epochs=3)
    trial.assign((), (replace(spec, validation_classes=()),))
    yield trial
    trial.cleanup()


def test_it_reports_its_epochs_and_ends_with_a_rank_that_dies(trial: TrainingTrial) -> None:
    (news,) = trial.step()["news"]
    assert [record["epoch"] for record in news["records"]] == [1]
    (attempt,) = trial._attempts.values()
    training = attempt.training
    assert isinstance(training, FirstRank)
    assert training._others is not None
    (other,) = training._others._processes
    os.kill(other.pid, signal.SIGKILL)
    with pytest.raises(RankLost):
        trial.step()
    assert "RankLost" in next(Path(training.spec.directory).rglob("*.log")).read_text()


def test_a_trial_that_is_ended_leaves_nobody(trial: TrainingTrial) -> None:
    """After pruning, the actor takes the next trial on the same GPUs."""
    trial.step()
    (attempt,) = trial._attempts.values()
    training = attempt.training
    assert isinstance(training, FirstRank)
    assert training._others is not None
    (other,) = training._others._processes
    del attempt, training
    trial.reset_config({"specs": ()})
    assert other.poll() is not None
