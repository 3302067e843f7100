"""A worker with several devices: it reports as with one, and a rank that dies ends it as its own death."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.small_training import drawn_images, small_spec

from trainables.training.attempt import Worker
from trainables.training.distributed import RankLost
from trainables.training.distributed.training import FirstRank

CPU = torch.device("cpu")


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Worker]:
    """A worker with two devices."""
    trial = Worker(cpus=torch.get_num_threads(), gpus=0)
    trial._devices = [CPU, CPU]
    spec = small_spec(drawn_images(tmp_path), tmp_path, epochs=3)
    trial.assign((), (replace(spec, validation_classes=()),))
    yield trial
    trial.end()


def test_it_reports_its_epochs_and_ends_with_a_rank_that_dies(trial: Worker) -> None:
    (news,) = trial.step()
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


def test_a_trial_that_is_ended_leaves_nobody(trial: Worker) -> None:
    """As after pruning: the worker takes the next trial, on the same GPUs."""
    trial.step()
    (attempt,) = trial._attempts.values()
    training = attempt.training
    assert isinstance(training, FirstRank)
    assert training._others is not None
    (other,) = training._others._processes
    del attempt, training
    trial.assign(trial.directories, ())
    assert other.poll() is not None
