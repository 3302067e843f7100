"""What is to be trained next, and what a training's news means: the studies' side of the tuner, free of Ray.

A stage is a list of studies with a budget each. Its trials are started on the least-started loss first. A study may
have nothing to start before something that runs has ended: a budget that may be used up, a grid's best value that is
not known yet. When nothing of a stage is left to start or to wait for, the next stage is asked for.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.study.budget import Budget
from search.study.study import LossStudy
from trainables.spec import TrialSpec

logger = logging.getLogger(__name__)

MAX_CRASHES = 3
"""How often a trial may lose its actor before the trial itself is held to be the cause."""


@dataclass(kw_only=True)
class QueuedStudy:
    """One study's share of a stage: as many trials as ``budget`` lets start, each trained as ``spec`` says."""

    loss: str
    study: LossStudy
    budget: Budget
    prune: bool
    seed: Callable[[int], int]
    spec: Callable[[FrozenTrial], TrialSpec]
    lost: deque[int] = field(default_factory=deque)
    started: int = 0

    def __post_init__(self) -> None:
        states = [trial.state for trial in self.study.trials()]
        # What runs without a driver was lost with the last one.
        self.lost.extend(number for number, state in enumerate(states) if state == TrialState.RUNNING)
        self.started = sum(state != TrialState.WAITING for state in states)

    @property
    def has_more(self) -> bool:
        """Whether there is a trial to start now."""
        return bool(self.lost) or self.budget.availability(self.study.trials()).open

    def start(self) -> FrozenTrial:
        """Start the next trial, lost ones first."""
        if self.lost:
            return self.study.take_up(self.lost.popleft(), self.seed)
        trial = self.study.ask(self.seed)
        self.started += 1
        return trial


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the search: trials that can run side by side."""

    name: str
    courses: Sequence[QueuedStudy]


@dataclass(kw_only=True)
class RunningTrial:
    """A trial that is being trained."""

    stage: str
    course: QueuedStudy
    number: int
    spec: TrialSpec
    losses: int = 0


Listener = Callable[[RunningTrial, FrozenTrial], None]


class TrialQueue:
    """Hands out jobs stage by stage and carries their news into the studies.

    ``stages`` is a generator: what it does between two stages happens when the first is done.
    """

    def __init__(self, stages: Iterator[Stage], listeners: Sequence[Listener] = ()) -> None:
        self._stages = stages
        self._listeners = listeners
        self._stage: Stage | None = None
        self._live: list[RunningTrial] = []
        self._lost: deque[RunningTrial] = deque()
        self.done = False

    def next_trial(self) -> RunningTrial | None:
        """The next job; None where there is none now, because what runs has to end first, or because all is done."""
        while not self.done:
            if self._lost:
                return self._begin(self._lost.popleft())
            if courses := [course for course in self._courses if course.has_more]:
                assert self._stage is not None
                course = min(courses, key=lambda course: course.started - len(course.lost))
                trial = course.start()
                job = RunningTrial(stage=self._stage.name, course=course, number=trial.number, spec=course.spec(trial))
                return self._begin(job)
            if self._live:
                return None
            self._stage = next(self._stages, None)
            self.done = self._stage is None
        return None

    @property
    def has_to_wait(self) -> bool:
        """Whether there is nothing to start before something that runs has ended."""
        startable = bool(self._lost) or any(course.has_more for course in self._courses)
        return bool(self._live) and not startable

    @property
    def _courses(self) -> Sequence[QueuedStudy]:
        return self._stage.courses if self._stage else ()

    def _begin(self, job: RunningTrial) -> RunningTrial:
        self._live.append(job)
        self._notify(job)
        return job

    def on_trial_result(self, job: RunningTrial, result: dict[str, Any]) -> bool:
        """Carry a step's result (see :class:`trainables.trial.TrainingTrial`) into the study; whether to go on."""
        if failure := result.get("failure"):
            self._finish(job, TrialState.FAIL, f"{failure['cause']}: {failure['reason']}", failure)
            return False
        study = job.course.study
        last = len(result["records"]) - 1
        for position, record in enumerate(result["records"]):
            is_end = result["finished"] and position == last
            reason = study.report(job.number, record)
            if reason and job.course.prune and not is_end:
                self._finish(job, TrialState.PRUNED, reason)
                return False
        if result["finished"]:
            self._finish(job, TrialState.COMPLETE, f"all {job.spec.epochs} epochs trained")
            return False
        self._notify(job)
        return True

    def on_trial_crash(self, job: RunningTrial, reason: str) -> None:
        """A job's actor or node is gone: it is tried again, from its checkpoint, under its number."""
        job.losses += 1
        if job.losses >= MAX_CRASHES:
            failure = {"cause": "LOST", "reason": f"its process died {job.losses} times; the last time: {reason}"}
            self._finish(job, TrialState.FAIL, f"LOST: {failure['reason']}", failure)
            return
        logger.warning("%s trial %d was lost (%s) and is tried again.", job.course.study.name, job.number, reason)
        self._live.remove(job)
        self._lost.append(job)
        self._notify(job)

    def _finish(
        self, job: RunningTrial, state: TrialState, outcome: str, failure: dict[str, str] | None = None
    ) -> None:
        job.course.study.finish(job.number, state, outcome, failure)
        self._live.remove(job)
        self._notify(job)

    def _notify(self, job: RunningTrial) -> None:
        trial = job.course.study.trial(job.number)
        for listener in self._listeners:
            listener(job, trial)
