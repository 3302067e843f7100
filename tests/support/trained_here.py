"""Whole commands in this process, without Ray and MLflow, but with real trainings and scores."""

from collections.abc import Callable
from typing import Any

import pytest
from support.without_ray import use

from search.engines.in_process import InProcess
from trainables.spec import TrialSpec
from trainables.training.attempt import Worker


def worker_of(*specs: TrialSpec) -> Worker:
    """Return a worker with attempts at ``specs``, on one CPU thread."""
    worker = Worker(cpus=1, gpus=0)
    worker.assign((), specs)
    return worker


def trained_here(monkeypatch: pytest.MonkeyPatch, on_start: Callable[[], None] = lambda: None) -> None:
    """Let ``holdout run`` train in this process; ``on_start`` is called before the images are decoded."""

    def engine(*given: Any) -> InProcess:
        on_start()
        return InProcess(*given)

    use(monkeypatch, engine)
