"""The queue of trials: the next trial to train, and the effect of a training's results on its study.

This is the studies' side of the tuner and independent of the engine. A stage is a list of studies with a budget each;
the least-started study is asked for the next trial. It may have nothing to propose until a running trial ends: the
budget may be used up, or a coordinate search needs the best value first. When nothing of a stage is left to start or to
wait for, the next stage begins.

A worker may train several trials at once, a stack (:mod:`trainables.training.stack`). Its first trial is any next one;
the others have the same stack key. If the process of a stack dies or runs out of memory, it does not count against
the members: they are retried alone, or in a smaller stack.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from optuna.trial import TrialState

from search.study.queued import QueuedStage, QueuedStudy, RunningTrial, TrialListener
from search.trials import whole_training
from trainables.mistakes import Failure
from trainables.spec import EpochRecord, TrialSpec
from trainables.storage import DiskFull

logger = logging.getLogger(__name__)

LOST = "LOST"
"""The cause of a failure that neither the parameters nor the code caused."""

OUT_OF_MEMORY = "OUT_OF_MEMORY"

MAX_CRASHES = 3
"""A trial fails after its own process died this many times in a row without a new epoch."""

MAX_STORAGE_FAILURES = 6
"""A trial fails after its files could not be stored this many times while those of other trials were."""

PAUSES_S: tuple[float, ...] = (10, 60, 300, 900, 1800)
"""The back-off while checkpoint storage is unreachable: 51 minutes in all."""


class TrialQueue:
    """The source of trials for an engine, stage by stage, and the receiver of their results.

    ``stages`` is a generator: its code between two stages runs when the first of them is done.
    """

    def __init__(self, stages: Iterator[QueuedStage], listeners: Sequence[TrialListener] = ()) -> None:
        self._stages = stages
        self._listeners = listeners
        self._stage: QueuedStage | None = None
        self._running: list[RunningTrial] = []
        self._waiting: deque[RunningTrial] = deque()  # to be retried, or asked for but with another key than the stack
        self._keys: dict[str, set[Hashable]] = {}  # the stack keys seen in each study
        self._max_stack: dict[Hashable, int] = {}  # the stack size that fits in memory, for keys that ran out of it
        self._outage = _Outage()
        self.done = False

    def stack(self, size: int) -> "Stack":
        """Return a new stack of up to ``size`` trials of this queue."""
        return Stack(self, size)

    # What to train next.

    def next_trial(self) -> RunningTrial | None:
        """Return the next trial to train; None if a running trial or a pause has to end first, or all is done."""
        while not self.done:
            if self._outage.left_s:
                return None
            if self._waiting:
                return self._start(self._waiting.popleft())
            if studies := self._open_studies:
                return self._start(self._ask(studies))
            if self._running:
                return None
            for study in self._studies:
                study.end()
            self._stage = next(self._stages, None)
            self.done = self._stage is None
        return None

    def next_beside(self, members: Sequence[RunningTrial], *, at_once: int, workers: int) -> RunningTrial | None:
        """Return the next trial to train in one stack with ``members``; None if no trial fits now.

        A proposed trial that does not fit the stack waits for another worker. At most ``at_once`` trials run or wait,
        so that the sampler proposes for that many slots. A stack takes at most its share of the trials left, so that
        all ``workers`` get some.
        """
        key = members[0].stack_key
        if key is None or self._outage.left_s or any(member.alone for member in members):
            return None
        if len(members) >= min(self._max_stack.get(key, len(members) + 1), math.ceil(self._left / workers)):
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

    @property
    def has_to_wait(self) -> bool:
        """True if nothing can start before a running trial or a pause ends."""
        if self._outage.left_s:
            return True
        return bool(self._running) and not self._waiting and not self._open_studies

    @property
    def _studies(self) -> Sequence[QueuedStudy]:
        return self._stage.studies if self._stage else ()

    @property
    def _open_studies(self) -> list[QueuedStudy]:
        return [study for study in self._studies if study.has_more]

    def _studies_with(self, key: Hashable) -> list[QueuedStudy]:
        """Return the open studies that had a trial with ``key``; without any, those whose keys are unknown."""
        studies = self._open_studies
        known = [study for study in studies if key in self._keys.get(study.study.name, ())]
        return known or [study for study in studies if study.study.name not in self._keys]

    def _note_key(self, running: RunningTrial) -> None:
        self._keys.setdefault(running.study.name, set()).add(running.stack_key)

    @property
    def _left(self) -> int:
        """The maximum number of trials of the stage that run or are still to run."""
        return len(self._running) + len(self._waiting) + sum(study.left for study in self._studies)

    def _ask(self, studies: Sequence[QueuedStudy]) -> RunningTrial:
        """Start the next trial of the least-started study."""
        assert self._stage is not None
        queued = min(studies, key=lambda queued: queued.study.tally.started - len(queued.lost))
        trial = queued.start()
        return RunningTrial(stage=self._stage.stage, queued=queued, number=trial.number, spec=queued.spec(trial))

    def _start(self, running: RunningTrial) -> RunningTrial:
        self._running.append(running)
        trial = running.stored
        for listener in self._listeners:
            listener.on_start(running, trial)
        return running

    # What a training's results mean.

    def on_trial_result(self, running: RunningTrial, result: dict[str, Any], together: int = 1) -> bool:
        """Store the result of a trial's step (:class:`trainables.trial.TrainingTrial`); return True if it continues.

        ``together`` is the size of its stack.

        Raises:
            DiskFull: the trial's files could not be written. The trial stays RUNNING, as if the driver had died: the
                next driver resumes it from its checkpoint.
            Failure: no trial could store its files for too long.
        """
        if full := result.get("disk_full"):
            raise DiskFull(full)
        if failure := result.get("failure"):
            self._on_failure(running, failure, together)
            return False
        for position, record in enumerate(result["records"], start=1):
            is_last = result["finished"] and position == len(result["records"])
            reason = self._report(running, record)
            if reason and running.queued.prune and not is_last:
                self._end(running, TrialState.PRUNED, reason)
                return False
        if result["finished"]:
            self._outage.end()
            self._end(running, TrialState.COMPLETE, whole_training(running.spec.epochs))
            return False
        if running.alone and running.new_epochs:
            running.alone = False
            if self._waiting:  # stop it here, so that it can form a stack with the waiting trials
                self._retry(running)
                return False
        return True

    def on_trial_error(self, running: RunningTrial, reason: str, *, own: bool, together: int = 1) -> None:
        """Retry a trial whose worker or node is gone, from its checkpoint and under the same number.

        ``own`` is True if the trial's own process died on a node that is alive. Only this counts against the trial,
        and only if it was not in a stack (``together`` is the stack's size). Members of a stack are retried alone,
        which shows which of them is the cause.
        """
        if own and together > 1:
            running.alone = True
        else:
            running.crashes += own
        if running.crashes >= MAX_CRASHES:
            times = f"{running.crashes} times without a new epoch"
            self._fail_lost(running, f"its process died {times}; the last time: {reason}")
            return
        logger.warning("%s was lost (%s); retrying%s.", running.name, reason, " it alone" if running.alone else "")
        self._retry(running)

    def _report(self, running: RunningTrial, record: EpochRecord) -> str | None:
        """Store an epoch; return the reason to prune the trial, if there is one."""
        report = running.study.report(running.number, record)
        if report.is_new:
            running.crashes = 0
            running.new_epochs += 1
            if running.keeps_files:
                running.storage_failures = 0
                self._outage.end()
            trial = running.stored
            for listener in self._listeners:
                listener.on_epoch(running, trial, record)
        return report.prune

    def _on_failure(self, running: RunningTrial, failure: dict[str, str], together: int) -> None:
        cause, reason = failure["cause"], failure["reason"]
        if cause == LOST:
            self._on_storage_failure(running, reason)
        elif cause == OUT_OF_MEMORY and together > 1:
            self._on_large_stack(running, reason, together)
        else:
            self._end(running, TrialState.FAIL, f"{cause}: {reason}", failure)

    def _on_storage_failure(self, running: RunningTrial, reason: str) -> None:
        """Retry a trial whose files could not be stored or read, after a pause.

        Raises:
            Failure: no trial could store its files for so long that the search ends; continuing would lose every trial.
        """
        running.storage_failures += 1
        if not self._outage.note():
            raise Failure(
                f"The checkpoint storage is unreachable: no trial could store its files for {self._outage.minutes:.0f} "
                f"minutes; the last one was {running.name}: {reason}. Check that it can be reached and written and has "
                "free space; the same command resumes the search."
            )
        if running.storage_failures >= MAX_STORAGE_FAILURES:
            times = f"{running.storage_failures} times, while those of other trials were"
            self._fail_lost(running, f"its files could not be stored {times}; the last time: {reason}")
            return
        pause = self._outage.left_s
        when = f" in {pause:.0f} s; nothing else starts before" if pause else ""
        logger.warning("%s was lost (%s); retrying%s.", running.name, reason, when)
        self._retry(running)

    def _on_large_stack(self, running: RunningTrial, reason: str, together: int) -> None:
        """Retry a trial of a stack that ran out of memory in a stack of half the size."""
        half = together // 2
        if half < self._max_stack.get(running.stack_key, together):
            self._max_stack[running.stack_key] = half
            logger.warning(
                "%d trials like %s do not fit in memory together (%s); retrying at most %d at once. Set "
                "resources.stack to %d to avoid this in another search.",
                together, running.name, reason, half, half,
            )  # fmt: skip
        self._retry(running)

    def _retry(self, running: RunningTrial) -> None:
        running.new_epochs = 0
        self._running.remove(running)
        self._waiting.append(running)
        trial = running.stored
        for listener in self._listeners:
            listener.on_lost(running, trial)

    def _fail_lost(self, running: RunningTrial, reason: str) -> None:
        self._end(running, TrialState.FAIL, f"{LOST}: {reason}", {"cause": LOST, "reason": reason})

    def _end(
        self, running: RunningTrial, state: TrialState, outcome: str, failure: dict[str, str] | None = None
    ) -> None:
        running.study.finish(running.number, state, outcome, failure)
        self._running.remove(running)
        trial = running.stored
        for listener in self._listeners:
            listener.on_end(running, trial)


class Stack:
    """Up to ``size`` trials of ``queue`` that one worker trains together; empty while it waits for work.

    The worker identifies its trials by their directories, which no other training uses.
    """

    def __init__(self, queue: TrialQueue, size: int) -> None:
        self._queue = queue
        self._size = size
        self._members: dict[str, RunningTrial] = {}

    @property
    def members(self) -> tuple[RunningTrial, ...]:
        """The trials."""
        return tuple(self._members.values())

    @property
    def study(self) -> str | None:
        """The name of the trials' study; None for an empty stack."""
        return next((member.study.name for member in self._members.values()), None)

    def fill(self, *, at_once: int, workers: int) -> tuple[TrialSpec, ...]:
        """Take trials from the queue while there is room; at most ``at_once`` run on all ``workers``."""
        taken: list[TrialSpec] = []
        while len(self._members) < self._size:
            members = self.members
            running = (
                self._queue.next_beside(members, at_once=at_once, workers=workers)
                if members
                else self._queue.next_trial()
            )
            if running is None:
                break
            self._members[running.spec.directory] = running
            taken.append(running.spec)
        return tuple(taken)

    def on_result(self, news: Sequence[dict[str, Any]]) -> tuple[str, ...]:
        """Record the news of a step in the studies; return the directories of the trials that end here."""
        told = {entry["directory"]: entry for entry in news}
        together = len(self._members)
        ended: list[str] = []
        for directory, running in tuple(self._members.items()):
            if directory in told:
                goes_on = self._queue.on_trial_result(running, told[directory], together)
            else:  # the worker never got it: its spec cannot be read there
                self._queue.on_trial_error(running, "its worker could not take it", own=True, together=together)
                goes_on = False
            if not goes_on:
                del self._members[directory]
                ended.append(directory)
        return tuple(ended)

    def on_error(self, reason: str, *, own: bool) -> None:
        """Record that the worker died; ``own`` is False if its machine is gone."""
        members, self._members = self.members, {}
        for running in members:
            self._queue.on_trial_error(running, reason, own=own, together=len(members))


class _Outage:
    """Back-off while checkpoint storage is unreachable; no trial starts meanwhile.

    Attributes:
        minutes: the time from the first failure to the last one.
    """

    def __init__(self) -> None:
        self.minutes = 0.0
        self._began = 0.0
        self._pauses = 0
        self._until = 0.0

    def note(self) -> bool:
        """Note that a trial's files could not be stored; return False if there is no pause left."""
        now = time.monotonic()
        if not self._pauses:
            self._began = now
        self.minutes = (now - self._began) / 60
        if now < self._until:  # another trial that was running met the same outage
            return True
        if self._pauses == len(PAUSES_S):
            return False
        self._until = now + PAUSES_S[self._pauses]
        self._pauses += 1
        return True

    def end(self) -> None:
        """Note that files were stored."""
        self._pauses, self._until = 0, 0.0

    @property
    def left_s(self) -> float:
        """The rest of the pause in seconds, 0 without one."""
        return max(0.0, self._until - time.monotonic())
