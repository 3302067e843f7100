"""The queue of trials: the next trial to train, and the effect of a training's results on its study.

A stage is a list of studies with a budget each; the least-started study is asked for the next trial. It may have
nothing to propose until a running trial ends: the budget may be used up, or a coordinate search needs the best value
first. When nothing of a stage is left to start or to wait for, the next stage begins.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from optuna.trial import FrozenTrial, TrialState

from search.stages import Stage
from search.study.sampler import STOPPED, Budget
from search.study.study import LossStudy
from search.trials import whole_training
from trainables.common.errors import Failure
from trainables.common.storage import DiskFull
from trainables.training.spec import EpochRecord, Failed, News, NoSpace, TrialSpec


@dataclass(kw_only=True)
class QueuedStudy:
    """One study in a stage: as many trials as ``budget`` permits, each trained according to ``spec``."""

    loss: str
    study: LossStudy
    budget: Budget
    prune: bool
    seed: Callable[[int], int]
    spec: Callable[[FrozenTrial], TrialSpec]
    lost: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        # Trials that are RUNNING now were lost with the previous driver.
        self.lost.extend(trial.number for trial in self.study.trials() if trial.state == TrialState.RUNNING)

    @property
    def has_more(self) -> bool:
        return bool(self.lost) or self.budget.availability(self.study.trials(), self.study.tally).open


@dataclass(frozen=True, kw_only=True)
class QueuedStage:
    """A stage and its studies, whose trials can run concurrently."""

    stage: Stage
    studies: Sequence[QueuedStudy]


@dataclass(kw_only=True)
class RunningTrial:
    """A trial that is being trained.

    ``crashes`` counts the deaths of its own process since its last new epoch, ``storage_failures`` the failures to
    store its files since they last were, and ``new_epochs`` the epochs of this attempt.
    """

    stage: Stage
    queued: QueuedStudy
    number: int
    spec: TrialSpec
    crashes: int = 0
    storage_failures: int = 0
    new_epochs: int = 0

    @property
    def loss(self) -> str:
        return self.queued.loss

    @property
    def study(self) -> LossStudy:
        return self.queued.study

    @property
    def study_name(self) -> str:
        return self.study.name

    @property
    def stored(self) -> FrozenTrial:
        return self.study.trial(self.number)

    @property
    def name(self) -> str:
        return f"{self.study.name} trial {self.number}"


class TrialListener:
    """Callbacks for the events of a queue, each called when the event is stored."""

    def on_start(self, running: RunningTrial) -> None:
        """Handle a trial that was given to a worker, for the first time or again."""

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        """Handle a new epoch of a trial."""

    def on_end(self, running: RunningTrial) -> None:
        """Handle a trial that is COMPLETE, PRUNED or FAIL."""

    def on_lost(self, running: RunningTrial) -> None:
        """Handle a trial that lost its worker; it will be started again."""


logger = logging.getLogger(__name__)

LOST = "LOST"
"""The cause of a failure that neither the parameters nor the code caused."""

MAX_CRASHES = 3
"""A trial fails after its own process died this many times in a row without a new epoch."""

MAX_STORAGE_FAILURES = 6
"""A trial fails after its files could not be stored this many times while those of other trials were."""

PAUSES_S: tuple[float, ...] = (10, 60, 300, 900, 1800)
"""The back-off while checkpoint storage is unreachable: 51 minutes in all."""


class TrialQueue:
    """The queue of an engine (:class:`search.engines.base.Queue`): trials stage by stage, and the effect of results.

    ``stages`` is a generator: its code between two stages runs when the first of them is done.
    """

    def __init__(self, stages: Iterator[QueuedStage], listeners: Sequence[TrialListener] = ()) -> None:
        self._stages = stages
        self._listeners = listeners
        self._stage = QueuedStage(stage=Stage.SEARCH, studies=())  # before the first one
        self._running: list[RunningTrial] = []
        self._lost: deque[RunningTrial] = deque()  # to be retried
        self._outage = _Outage()
        self.done = False

    # What to train next.

    def next_trial(self) -> RunningTrial | None:
        while not self.done:
            if self._outage.left_s:
                return None
            if self._lost:
                return self._start(self._lost.popleft())
            if studies := self._open_studies:
                return self._start(self._ask(studies))
            if self._running:
                return None
            for queued in self._stage.studies:
                if reason := queued.budget.early_end(queued.study.trials()):
                    queued.study.set_attributes({"ended_early": reason})
            following = next(self._stages, None)
            self._stage, self.done = following or self._stage, following is None
        return None

    @property
    def has_to_wait(self) -> bool:
        return bool(self._outage.left_s or (self._running and not self._lost and not self._open_studies))

    @property
    def _open_studies(self) -> list[QueuedStudy]:
        return [study for study in self._stage.studies if study.has_more]

    def _ask(self, studies: Sequence[QueuedStudy]) -> RunningTrial:
        """Start the next trial of the least-started study, lost ones first."""
        queued = min(studies, key=lambda queued: queued.study.tally.started - len(queued.lost))
        study = queued.study
        trial = study.trial(queued.lost.popleft()) if queued.lost else study.ask(queued.seed)
        return RunningTrial(stage=self._stage.stage, queued=queued, number=trial.number, spec=queued.spec(trial))

    def _start(self, running: RunningTrial) -> RunningTrial:
        self._running.append(running)
        for listener in self._listeners:
            listener.on_start(running)
        return running

    # What a training's results mean.

    def on_trial_result(self, running: RunningTrial, news: News) -> bool:
        """Store the news of a trial's step; return True if it continues.

        Raises:
            DiskFull: the trial's files could not be written. The trial stays RUNNING, as if the driver had died: the
                next driver resumes it from its checkpoint.
            Failure: no trial could store its files for too long.
        """
        if isinstance(news, NoSpace):
            raise DiskFull(news.text)
        if isinstance(news, Failed):
            if news.cause == LOST:
                self._on_storage_failure(running, news.reason)
            else:
                self._fail(running, news)
            return False
        for position, record in enumerate(news.records, start=1):
            is_last = news.finished and position == len(news.records)
            if self._report(running, record, is_last=is_last):
                return False
        return True

    def on_trial_error(self, running: RunningTrial, reason: str, *, own: bool) -> None:
        """Retry a trial whose worker or node is gone, from its checkpoint and under the same number.

        ``own`` is True if the trial's own process died on a node that is alive. Only this counts against the trial.
        """
        running.crashes += own
        if running.crashes >= MAX_CRASHES:
            times = f"{running.crashes} times without a new epoch"
            self._fail(running, Failed(cause=LOST, reason=f"its process died {times}; the last time: {reason}"))
            return
        self._retry(running, reason)

    def _report(self, running: RunningTrial, record: EpochRecord, *, is_last: bool) -> bool:
        """Store an epoch and, if it ends the trial, how, in one transaction; return True if it does."""
        with running.study.storage.transaction():
            is_new, pruned = running.study.report(running.number, record)
            pruned = pruned if running.queued.prune and not is_last else None
            if ended := is_last or pruned is not None:
                state = TrialState.PRUNED if pruned else TrialState.COMPLETE
                outcome = pruned or whole_training(running.stored, running.spec)
                running.study.finish(running.number, state, outcome)
        if is_new:
            running.crashes = 0
            running.new_epochs += 1
            if running.new_epochs > 1:  # the checkpoint of the first epoch is written while the second one trains
                running.storage_failures = 0
                self._outage.end()
            for listener in self._listeners:
                listener.on_epoch(running, record)
        if is_last:
            self._outage.end()
        if ended:
            self._remove(running)
        return ended

    def _on_storage_failure(self, running: RunningTrial, reason: str) -> None:
        """Retry a trial after a pause; raise if no trial could store its files for so long that the search ends."""
        running.storage_failures += 1
        if not self._outage.note():
            raise Failure(
                f"The checkpoint storage is unreachable: no trial could store its files for {self._outage.minutes:.0f} "
                f"minutes; the last one was {running.name}: {reason}. Check that it can be reached and written and has "
                "free space; the same command resumes the search."
            )
        if running.storage_failures >= MAX_STORAGE_FAILURES:
            times = f"{running.storage_failures} times, while those of other trials were"
            reason = f"its files could not be stored {times}; the last time: {reason}"
            self._fail(running, Failed(cause=LOST, reason=reason))
            return
        pause = self._outage.left_s
        when = f" in {pause:.0f} s; nothing else starts before" if pause else ""
        self._retry(running, reason, when)

    def _retry(self, running: RunningTrial, reason: str, when: str = "") -> None:
        logger.warning("%s was lost (%s); retrying%s.", running.name, reason, when)
        running.new_epochs = 0
        self._running.remove(running)
        self._lost.append(running)
        for listener in self._listeners:
            listener.on_lost(running)

    def _fail(self, running: RunningTrial, failed: Failed) -> None:
        had_more = running.queued.has_more
        running.study.finish(running.number, TrialState.FAIL, f"{failed.cause}: {failed.reason}", failed.to_json())
        self._remove(running)
        if had_more and running.study.tally.stopped and (self._running or self._open_studies):  # else the stage ends
            logger.warning("%s starts no more trials: %s (%s).", running.study_name, STOPPED, failed.reason)

    def _remove(self, running: RunningTrial) -> None:
        self._running.remove(running)
        for listener in self._listeners:
            listener.on_end(running)


class _Outage:
    """Back-off while checkpoint storage is unreachable, ``minutes`` from the first failure to the last one so far."""

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
