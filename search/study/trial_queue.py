"""What is trained next, and what a training's results mean: the studies' side of the tuner, free of Ray.

A stage is a list of studies with a budget each. Its trials are started on the least-started study first. A study may
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
from search.study.names import Stage
from search.study.study import LossStudy
from trainables.files import DiskFull
from trainables.spec import TrialSpec
from trainables.training.epoch_record import EpochRecord

logger = logging.getLogger(__name__)

MAX_CRASHES = 3
"""How often in a row a trial's own process may die, without a new epoch between, before the trial is the cause."""


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

    def __post_init__(self) -> None:
        # What is RUNNING without a driver was lost with the last one.
        self.lost.extend(trial.number for trial in self.study.trials() if trial.state == TrialState.RUNNING)

    @property
    def has_more(self) -> bool:
        """Whether there is a trial to start now."""
        return bool(self.lost) or self.budget.availability(self.study.trials(), self.study.tally).open

    def end(self) -> None:
        """Keep in the study why it has fewer trials than were planned, for who reads it later."""
        if reason := self.budget.early_end(self.study.trials()):
            self.study.set_attributes({"ended_early": reason})

    def start(self) -> FrozenTrial:
        """Start the next trial, lost ones first."""
        return self.study.trial(self.lost.popleft()) if self.lost else self.study.ask(self.seed)


@dataclass(frozen=True, kw_only=True)
class QueuedStage:
    """A stage's trials, which can run side by side."""

    stage: Stage
    studies: Sequence[QueuedStudy]


@dataclass(kw_only=True)
class RunningTrial:
    """A trial that is being trained. ``crashes`` counts how often its own process died since its last new epoch."""

    stage: Stage
    queued: QueuedStudy
    number: int
    spec: TrialSpec
    crashes: int = 0

    @property
    def loss(self) -> str:
        """The loss that is trained."""
        return self.queued.loss

    @property
    def study(self) -> LossStudy:
        """The study that the trial belongs to."""
        return self.queued.study


class TrialListener:
    """What follows the trials of a queue. ``trial`` is the trial as it is stored after the event."""

    def on_start(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """A trial was given to a worker, for the first time or again."""

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        """A trial reported an epoch that was not known yet."""

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """A trial is COMPLETE, PRUNED or FAIL."""

    def on_lost(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """A trial's actor or node is gone; the trial will be started again."""


class TrialQueue:
    """Hands out trials stage by stage and carries their results into the studies.

    ``stages`` is a generator: what it does between two stages happens when the first is done.
    """

    def __init__(self, stages: Iterator[QueuedStage], listeners: Sequence[TrialListener] = ()) -> None:
        self._stages = stages
        self._listeners = listeners
        self._stage: QueuedStage | None = None
        self._running: list[RunningTrial] = []
        self._lost: deque[RunningTrial] = deque()
        self.done = False

    def next_trial(self) -> RunningTrial | None:
        """The next trial to train; None where what runs has to end first, or where all is done."""
        while not self.done:
            if self._lost:
                return self._start(self._lost.popleft())
            if studies := [study for study in self._studies if study.has_more]:
                assert self._stage is not None
                queued = min(studies, key=lambda queued: queued.study.tally.started - len(queued.lost))
                trial = queued.start()
                spec = queued.spec(trial)
                return self._start(RunningTrial(stage=self._stage.stage, queued=queued, number=trial.number, spec=spec))
            if self._running:
                return None
            for study in self._studies:
                study.end()
            self._stage = next(self._stages, None)
            self.done = self._stage is None
        return None

    @property
    def has_to_wait(self) -> bool:
        """Whether there is nothing to start before something that runs has ended."""
        startable = bool(self._lost) or any(study.has_more for study in self._studies)
        return bool(self._running) and not startable

    @property
    def _studies(self) -> Sequence[QueuedStudy]:
        return self._stage.studies if self._stage else ()

    def _start(self, running: RunningTrial) -> RunningTrial:
        self._running.append(running)
        trial = running.study.trial(running.number)
        for listener in self._listeners:
            listener.on_start(running, trial)
        return running

    def on_trial_result(self, running: RunningTrial, result: dict[str, Any]) -> bool:
        """Carry a step's result (see :class:`trainables.trial.TrainingTrial`) into the study; whether to go on.

        Raises:
            DiskFull: the trial's files could not be written. It stays RUNNING, as if the driver had died: it goes on
                from its checkpoint with the next one.
        """
        if full := result.get("disk_full"):
            raise DiskFull(full)
        if failure := result.get("failure"):
            self._end(running, TrialState.FAIL, f"{failure['cause']}: {failure['reason']}", failure)
            return False
        for position, record in enumerate(result["records"], start=1):
            is_last = result["finished"] and position == len(result["records"])
            reason = self._report(running, record)
            if reason and running.queued.prune and not is_last:
                self._end(running, TrialState.PRUNED, reason)
                return False
        if result["finished"]:
            self._end(running, TrialState.COMPLETE, f"all {running.spec.epochs} epochs trained")
            return False
        return True

    def _report(self, running: RunningTrial, record: EpochRecord) -> str | None:
        """Store an epoch; why the trial should end now, None where it should go on."""
        report = running.study.report(running.number, record)
        if report.is_new:
            running.crashes = 0
            trial = running.study.trial(running.number)
            for listener in self._listeners:
                listener.on_epoch(running, trial, record)
        return report.prune

    def on_trial_error(self, running: RunningTrial, reason: str, *, own: bool) -> None:
        """A trial's actor or node is gone: it is tried again, from its checkpoint, under its number.

        ``own`` says that the process died that trained it, on a machine that lives; only this counts against it.
        """
        running.crashes += own
        if running.crashes >= MAX_CRASHES:
            times = f"{running.crashes} times without a new epoch"
            failure = {"cause": "LOST", "reason": f"its process died {times}; the last time: {reason}"}
            self._end(running, TrialState.FAIL, f"LOST: {failure['reason']}", failure)
            return
        logger.warning("%s trial %d was lost (%s) and is tried again.", running.study.name, running.number, reason)
        self._running.remove(running)
        self._lost.append(running)
        trial = running.study.trial(running.number)
        for listener in self._listeners:
            listener.on_lost(running, trial)

    def _end(
        self, running: RunningTrial, state: TrialState, outcome: str, failure: dict[str, str] | None = None
    ) -> None:
        running.study.finish(running.number, state, outcome, failure)
        self._running.remove(running)
        trial = running.study.trial(running.number)
        for listener in self._listeners:
            listener.on_end(running, trial)
