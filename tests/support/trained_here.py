"""Whole commands in this process, without Ray and MLflow, but with real trainings and scores."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from support.without_ray import NoTracker

from search.config.sections import ResourcesSection
from search.engines.ray_tune import Stack
from search.selection.retrieval_file import Scoring
from search.study.trial_queue import TrialQueue
from trainables.spec import TrialSpec
from trainables.trial import TrainingTrial


def trial_of(*specs: TrialSpec) -> TrainingTrial:
    """An actor's trial, without the actor."""
    trial = TrainingTrial.__new__(TrainingTrial)
    trial._devices = [torch.device("cpu")]
    trial._attempts = {}
    trial.assign((), specs)
    return trial


def trained_here(monkeypatch: pytest.MonkeyPatch, on_start: Callable[[], None] = lambda: None) -> None:
    """Let ``holdout run`` train in this process; ``on_start`` is called before the images are decoded."""
    torch.set_num_threads(1)  # as a worker's

    def get_ready(plans: Sequence[Any], *_: Any) -> int:
        on_start()
        for plan in plans:
            plan.images.make()
        return 1

    monkeypatch.setattr("search.driver.pipeline.get_ready", get_ready)
    monkeypatch.setattr("search.driver.pipeline.make_projection", lambda plan: None)
    monkeypatch.setattr("search.driver.pipeline.Tracker", NoTracker)
    monkeypatch.setattr("search.driver.pipeline._synchronised", lambda *_: "MLflow is not asked.")
    monkeypatch.setattr("search.engines.ray_tune.run_queue", _run_queue)
    monkeypatch.setattr("search.engines.ray_tune.map_on_workers", _score_all)


def _run_queue(queue: TrialQueue, *, resources: ResourcesSection, **_: Any) -> None:
    while True:
        stack = Stack(queue, resources.stack)
        specs = stack.fill(at_once=resources.stack, workers=1)
        if not specs:
            return
        trial = trial_of(*specs)
        try:
            while stack.members:
                ended = stack.on_result(trial.step()["news"])
                trial.assign(ended, stack.fill(at_once=resources.stack, workers=1) if stack.members else ())
        finally:
            trial.cleanup()


def _score_all(_: Any, tasks: Sequence[Scoring], **__: Any) -> list[Any]:
    from search.selection.scoring import score

    return [score(task) for task in tasks]
