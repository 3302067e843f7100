"""Trial listeners: phases of a start-up, the projection to MLflow, checkpoint clean-up and the GPU memory check."""

import logging
import time
from collections import deque

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from search.engines.base import Resources
from search.engines.capacity import too_tight
from search.plan.plan import trial_directory
from search.plan.records import Records
from search.stages import Stage, search_of
from search.study import RunningTrial, TrialListener
from search.tracking import Tracker
from trainables.common.errors import counted
from trainables.common.files import as_path
from trainables.common.storage import AnyPath, StorageFailure, ask, storage_errors
from trainables.training.checkpoints import BEST, forget_last
from trainables.training.spec import EpochRecord

logger = logging.getLogger(__name__)

STILL_WRITING = 50
"""Most trials that ended early and are measured again, as their workers may still be writing a checkpoint.

The number of slots is a further limit: a worker that is writing starts no other trial."""


class Phases(TrialListener):
    """Messages on the phases of a start-up until the first epoch; ``started`` is in seconds since 1970."""

    def __init__(self, console: Console, started: float) -> None:
        self._console = console
        self._started = started
        self._begun = 0.0
        self._waits = True

    def begin(self, text: str) -> None:
        self._begun = time.time()
        self._say(text)

    def end(self, text: str) -> None:
        """Print that the phase ended, with its duration."""
        self._say(f"{text} after {time.time() - self._begun:.1f} s.")

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        if self._waits:
            self._waits = False
            self._say(f"First epoch {time.time() - self._started:.1f} s after the start.")

    def _say(self, text: str) -> None:
        self._console.print(text, style="dim", highlight=False)


class FolderCheck(TrialListener):
    """Listener that ends the run if the folder of ``search`` was moved: trials would be written to two places."""

    def __init__(self, search: Records) -> None:
        self._folder = search.folder

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        self._folder.raise_if_moved()


class MlflowUpdates(TrialListener):
    """Listener that passes every changed trial to ``tracker``, which writes from the first new epoch on."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def on_start(self, running: RunningTrial) -> None:
        self._tracker.mark(running.study.name, running.stored, begin=False)

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        self._tracker.mark(running.study.name, running.stored)

    def on_end(self, running: RunningTrial) -> None:
        self._tracker.mark(running.study.name, running.stored)


class CheckpointCleanup(TrialListener):
    """Listener that removes resume checkpoints after each trial, and the worst trials' models beyond the limit.

    The limit ``checkpoints.max_gb`` covers the search stage, with the models of earlier sessions. Models of the other
    stages do not count and are never removed.
    """

    def __init__(self, search: Records) -> None:
        gigabytes = search.config.checkpoints.max_gb
        self._limit = None if gigabytes is None else gigabytes * 1e9
        self._search = search
        self._bytes: dict[str, int] | None = None  # size of the models by trial directory; None until listed
        self._values: dict[str, float] = {}
        self._ended_early: deque[str] = deque(maxlen=min(STILL_WRITING, search.slots))
        self._left: list[RunningTrial] = []

    def on_end(self, running: RunningTrial) -> None:
        """Clean up after a trial of this search. If the storage is unreachable, retry after the next trial."""
        if search_of(running.study.name) != self._search.name:
            return
        self._left.append(running)
        try:
            while self._left:
                with storage_errors(as_path(running.spec.directory)):
                    self._clean(self._left[0])
                del self._left[0]
        except StorageFailure as failure:  # no reason to fail the trial
            trials = counted(len(self._left), "trial")
            logger.warning("Checkpoints of %s are not cleaned up; retrying after the next trial: %s", trials, failure)

    def _clean(self, running: RunningTrial) -> None:
        directory = running.spec.directory
        forget_last(directory)
        if self._limit is None:
            return
        if self._bytes is None:
            self._bytes = self._measure_earlier()
        again = set(self._ended_early)
        if running.stage is Stage.SEARCH:
            trial = running.stored
            self._values[directory] = _value(trial)
            again.add(directory)
            if trial.state != TrialState.COMPLETE:  # its last model may still be written
                self._ended_early.append(directory)
        for ended in again:
            self._bytes[ended] = sum(path.stat().st_size for path in _models(as_path(ended)))
        self._shrink(self._bytes, self._limit)

    def _measure_earlier(self) -> dict[str, int]:
        """Return the bytes of the models of all ended trials, also of earlier sessions, with one listing per loss."""
        found: dict[str, int] = {}
        for loss in self._search.config.loss_names:
            ended = {
                trial.number: trial for trial in self._search.trials(loss, Stage.SEARCH) if trial.state.is_finished()
            }
            parent = as_path(trial_directory(self._search.plan, loss, Stage.SEARCH, 0)).parent
            for path in _models(parent):
                number = int(path.parts[len(parent.parts)])
                if number in ended:  # a running trial counts when it ends
                    directory = trial_directory(self._search.plan, loss, Stage.SEARCH, number)
                    self._values[directory] = _value(ended[number])
                    found[directory] = found.get(directory, 0) + path.stat().st_size
        return found

    def _shrink(self, kept: dict[str, int], limit: float) -> None:
        total = sum(kept.values())
        while total > limit:
            worst = min((directory for directory in kept if kept[directory]), key=self._values.__getitem__)
            for path in _models(as_path(worst)):
                path.unlink(missing_ok=True)
            total -= kept.pop(worst)


def _models(folder: AnyPath) -> list[AnyPath]:
    """Return the best models at any depth below ``folder``: cross-validation has one per fold."""
    return ask(folder, lambda: list(folder.rglob(f"attempt-*/{BEST}")))


def _value(trial: FrozenTrial) -> float:
    return trial.value if trial.value is not None else float("-inf")


class GpuMemoryCheck(TrialListener):
    """Listener that warns if the trials sharing a GPU (``gpus_per_trial`` < 1) need more memory than it has.

    It warns again only when a trial exceeds the highest peak so far.
    """

    def __init__(self, resources: Resources) -> None:
        self._gpus_per_trial = resources.gpus_per_trial
        self._most = 0

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        memory = record.get("memory")
        if not 0 < self._gpus_per_trial < 1 or memory is None or memory["peak"] <= self._most:
            return
        if sentence := too_tight(self._gpus_per_trial, memory):
            self._most = memory["peak"]
            logger.warning("%s", sentence)
