"""What is trained next, and what a training's results mean: the studies' side of the tuner, free of Ray.

A stage is a list of studies with a budget each. Its trials are started on the least-started study first. A study may
have nothing to start before something that runs has ended: a budget that may be used up, a grid's best value that is
not known yet. When nothing of a stage is left to start or to wait for, the next stage is asked for.

A worker may train several trials together, a stack (:mod:`trainables.training.stack`). Its first trial is anybody's
next one; those beside it have the same key. Where the process of a stack dies or lacks memory, nothing is held against
its members: they are tried again by themselves, or beside fewer others.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.stages import Stage
from search.study.budget import Budget
from search.study.study import LossStudy
from trainables.mistakes import Failure
from trainables.spec import EpochRecord, TrialSpec
from trainables.storage import DiskFull
from trainables.training.stack import stack_key

logger = logging.getLogger(__name__)

LOST = "LOST"
"""The cause of a failure that is neither the configuration's nor the code's."""

OUT_OF_MEMORY = "OUT_OF_MEMORY"

MAX_STORAGE_FAILURES = 6
"""How often a trial's files may not be kept, while those of others are, before the trial is the cause."""

PAUSES_S: tuple[float, ...] = (10, 60, 300, 900, 1800)
"""Where files cannot be kept, nothing is started for so long, one pause after the other: 51 minutes in all."""

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

    @property
    def left(self) -> int:
        """How many trials there are to start at most, now or later."""
        return len(self.lost) + self.budget.to_start(self.study.tally)

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
    """A trial that is being trained.

    ``crashes`` counts how often its own process died since its last new epoch, ``storage_failures`` how often its files
    could not be kept since they last were, and ``new_epochs`` what this attempt reported. ``alone``: it is trained by
    itself, since the process of a stack died that it was in, until it has reported a new epoch.
    """

    stage: Stage
    queued: QueuedStudy
    number: int
    spec: TrialSpec
    crashes: int = 0
    storage_failures: int = 0
    new_epochs: int = 0
    alone: bool = False

    @cached_property
    def stack_key(self) -> Hashable | None:
        """Trials with equal keys can be trained in one stack; None: this one can be in none."""
        return stack_key(self.spec)

    @property
    def keeps_files(self) -> bool:
        """Whether this attempt has kept a checkpoint: that of its first epoch is written while the second trains."""
        return self.new_epochs > 1

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
        """A trial has no worker any more, mostly since its actor or node is gone; it will be started again."""


class _Outage:
    """A storage that is away. Between two attempts at it nothing is started, lest all trials are spent on it.

    Attributes:
        minutes: how long ago the first failure was, when the last one was noted.
    """

    def __init__(self) -> None:
        self.minutes = 0.0
        self._began = 0.0
        self._pauses = 0
        self._until = 0.0

    def note(self) -> bool:
        """A trial's files could not be kept; whether it is worth trying again."""
        now = time.monotonic()
        if not self._pauses:
            self._began = now
        self.minutes = (now - self._began) / 60
        if now < self._until:  # one that ran on, and met the same
            return True
        if self._pauses == len(PAUSES_S):
            return False
        self._until = now + PAUSES_S[self._pauses]
        self._pauses += 1
        return True

    def end(self) -> None:
        """Files were kept."""
        self._pauses, self._until = 0, 0.0

    @property
    def pauses(self) -> bool:
        """Whether nothing is to be started now."""
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """Until something is started again, in seconds."""
        return max(0.0, self._until - time.monotonic())


class TrialQueue:
    """Hands out trials stage by stage and carries their results into the studies.

    ``stages`` is a generator: what it does between two stages happens when the first is done.
    """

    def __init__(self, stages: Iterator[QueuedStage], listeners: Sequence[TrialListener] = ()) -> None:
        self._stages = stages
        self._listeners = listeners
        self._stage: QueuedStage | None = None
        self._running: list[RunningTrial] = []
        self._waiting: deque[RunningTrial] = deque()  # lost, or asked for and of another key than the stack it was for
        self._keys: dict[str, set[Hashable]] = {}  # that a study's trials had
        self._fit: dict[Hashable, int] = {}  # how many fit in memory together, where a stack did not
        self._outage = _Outage()
        self.done = False

    def next_trial(self) -> RunningTrial | None:
        """The next trial to train; None where what runs or a pause has to end first, or where all is done."""
        while not self.done:
            if self._outage.pauses:
                return None
            if self._waiting:
                return self._start(self._waiting.popleft())
            if studies := [study for study in self._studies if study.has_more]:
                return self._start(self._ask(studies))
            if self._running:
                return None
            for study in self._studies:
                study.end()
            self._stage = next(self._stages, None)
            self.done = self._stage is None
        return None

    def next_beside(self, members: Sequence[RunningTrial], *, at_once: int, workers: int) -> RunningTrial | None:
        """The next trial to train in one stack with ``members``; None where there is none now.

        A trial that is asked for and does not fit waits for a worker that begins. Together with those that run there
        are never more than ``at_once``, so that proposals are those of as many slots. Of few trials each of
        ``workers`` has its part, rather than the first one all.
        """
        key = members[0].stack_key
        if key is None or self._outage.pauses or any(member.alone for member in members):
            return None
        if len(members) >= min(self._fit.get(key, len(members) + 1), math.ceil(self._left / workers)):
            return None
        for member in members:
            self._note_key(member)
        for running in self._waiting:
            if not running.alone and running.stack_key == key:
                self._waiting.remove(running)
                return self._start(running)
        while len(self._running) + len(self._waiting) < at_once and (studies := self._studies_with(key)):
            running = self._ask(studies)
            self._note_key(running)
            if running.stack_key == key:
                return self._start(running)
            self._waiting.append(running)
        return None

    def _studies_with(self, key: Hashable) -> list[QueuedStudy]:
        """The studies that may have a trial with ``key`` to start: those that had one, else those that had none."""
        studies = [study for study in self._studies if study.has_more]
        known = [study for study in studies if key in self._keys.get(study.study.name, ())]
        return known or [study for study in studies if study.study.name not in self._keys]

    def _ask(self, studies: Sequence[QueuedStudy]) -> RunningTrial:
        """Ask the least-started one for its next trial."""
        assert self._stage is not None
        queued = min(studies, key=lambda queued: queued.study.tally.started - len(queued.lost))
        trial = queued.start()
        spec = queued.spec(trial)
        return RunningTrial(stage=self._stage.stage, queued=queued, number=trial.number, spec=spec)

    def _note_key(self, running: RunningTrial) -> None:
        self._keys.setdefault(running.study.name, set()).add(running.stack_key)

    @property
    def has_to_wait(self) -> bool:
        """Whether there is nothing to start before something that runs, or a pause, has ended."""
        if self._outage.pauses:
            return True
        startable = bool(self._waiting) or any(study.has_more for study in self._studies)
        return bool(self._running) and not startable

    @property
    def _left(self) -> int:
        """How many trials of the stage run, or are to run, at most."""
        return len(self._running) + len(self._waiting) + sum(study.left for study in self._studies)

    @property
    def _studies(self) -> Sequence[QueuedStudy]:
        return self._stage.studies if self._stage else ()

    def _start(self, running: RunningTrial) -> RunningTrial:
        self._running.append(running)
        trial = running.study.trial(running.number)
        for listener in self._listeners:
            listener.on_start(running, trial)
        return running

    def on_trial_result(self, running: RunningTrial, result: dict[str, Any], together: int = 1) -> bool:
        """Carry what a step told of a trial (:class:`trainables.trial.TrainingTrial`) into the study; whether to go on.

        It was trained ``together`` with others, itself counted.

        Raises:
            DiskFull: the trial's files could not be written. It stays RUNNING, as if the driver had died: it goes on
                from its checkpoint with the next one.
        """
        if full := result.get("disk_full"):
            raise DiskFull(full)
        if failure := result.get("failure"):
            if failure["cause"] == LOST:
                self._on_storage_failure(running, failure["reason"])
                return False
            if together > 1 and failure["cause"] == OUT_OF_MEMORY:
                self._on_too_many(running, failure["reason"], together)
                return False
            self._end(running, TrialState.FAIL, f"{failure['cause']}: {failure['reason']}", failure)
            return False
        for position, record in enumerate(result["records"], start=1):
            is_last = result["finished"] and position == len(result["records"])
            reason = self._report(running, record)
            if reason and running.queued.prune and not is_last:
                self._end(running, TrialState.PRUNED, reason)
                return False
        if result["finished"]:
            self._outage.end()
            self._end(running, TrialState.COMPLETE, f"all {running.spec.epochs} epochs trained")
            return False
        if running.alone and running.new_epochs:
            running.alone = False
            if self._waiting:  # what was tried by itself too, or comes after it: they can be one stack again
                self._try_again(running)
                return False
        return True

    def _report(self, running: RunningTrial, record: EpochRecord) -> str | None:
        """Store an epoch; why the trial should end now, None where it should go on."""
        report = running.study.report(running.number, record)
        if report.is_new:
            running.crashes = 0
            running.new_epochs += 1
            if running.keeps_files:
                running.storage_failures = 0
                self._outage.end()
            trial = running.study.trial(running.number)
            for listener in self._listeners:
                listener.on_epoch(running, trial, record)
        return report.prune

    def on_trial_error(self, running: RunningTrial, reason: str, *, own: bool, together: int = 1) -> None:
        """A trial's actor or node is gone: it is tried again, from its checkpoint, under its number.

        ``own`` says that the process died that trained it, on a machine that lives; only this counts against it, and
        only where nothing was trained ``together`` with it (itself counted). Else it is tried by itself, which shows
        who was the cause.
        """
        if own and together > 1:
            running.alone = True
        else:
            running.crashes += own
        if running.crashes >= MAX_CRASHES:
            times = f"{running.crashes} times without a new epoch"
            self._end_lost(running, f"its process died {times}; the last time: {reason}")
            return
        again = "again by itself" if running.alone else "again"
        logger.warning("%s trial %d was lost (%s) and is tried %s.", running.study.name, running.number, reason, again)
        self._try_again(running)

    def _on_too_many(self, running: RunningTrial, reason: str, together: int) -> None:
        """The memory that a trial lacks is others' too, with which it was trained: it is tried again beside fewer."""
        half = together // 2
        if half < self._fit.get(running.stack_key, together):
            self._fit[running.stack_key] = half
            logger.warning(
                "%d trials like %s trial %d do not fit in memory together (%s): they are tried again, at most %d at "
                "once. Set resources.stack to %d to spare another search that.",
                together, running.study.name, running.number, reason, half, half,
            )  # fmt: skip
        self._try_again(running)

    def _on_storage_failure(self, running: RunningTrial, reason: str) -> None:
        """A trial's files cannot be kept or read, which is no fault of its own: it is tried again after a pause.

        Raises:
            Failure: nobody's files could be kept for so long that the search ends: to go on would lose every trial.
        """
        running.storage_failures += 1
        name = f"{running.study.name} trial {running.number}"
        if not self._outage.note():
            raise Failure(
                f"The storage does not answer, and no trial could keep its files for {self._outage.minutes:.0f} "
                f"minutes; the last one was {name}: {reason}. See that it can be reached and written, and that it has "
                "space; the same command goes on."
            )
        if running.storage_failures >= MAX_STORAGE_FAILURES:
            times = f"{running.storage_failures} times, while other trials kept theirs"
            self._end_lost(running, f"its files could not be kept {times}; the last time: {reason}")
            return
        pause = self._outage.left_s
        then = f"in {pause:.0f} s, and nothing else is started before" if pause else "again"
        logger.warning("%s was lost (%s) and is tried %s.", name, reason, then)
        self._try_again(running)

    def _end_lost(self, running: RunningTrial, reason: str) -> None:
        self._end(running, TrialState.FAIL, f"{LOST}: {reason}", {"cause": LOST, "reason": reason})

    def _try_again(self, running: RunningTrial) -> None:
        running.new_epochs = 0
        self._running.remove(running)
        self._waiting.append(running)
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
