"""What finished trials leave on disk: only best models, and of the search's own trials only so many gigabytes."""

from collections import deque

from optuna.trial import FrozenTrial, TrialState

from search.config.sections.storage import CheckpointsSection
from search.study.names import Stage
from search.study.trial_queue import RunningTrial, TrialListener
from trainables.files import AnyPath, as_path
from trainables.training.checkpoints import BEST, forget_last

STILL_WRITING = 50
"""So many of the trials that ended early are looked at again. A worker that still writes begins no other trial."""


class CheckpointCleanup(TrialListener):
    """Removes, after each trial, what only an unfinished training needs, and the worst models beyond the limit.

    The models of confirmations and final trainings are never removed.
    """

    def __init__(self, checkpoints: CheckpointsSection) -> None:
        self._limit = None if checkpoints.max_gb is None else checkpoints.max_gb * 1e9
        self._kept: dict[AnyPath, tuple[float, int]] = {}  # the trial's value, and the bytes
        self._total = 0
        self._ended_early: deque[tuple[float, str]] = deque(maxlen=STILL_WRITING)

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Remove what a trial that ended does not need any more."""
        forget_last(running.spec.directory)
        if self._limit is None:
            return
        value = trial.value if trial.value is not None else float("-inf")
        ended = [(value, running.spec.directory)] if running.stage is Stage.SEARCH else []
        for value, directory in (*self._ended_early, *ended):
            for path in as_path(directory).rglob(f"attempt-*/{BEST}"):
                _, known = self._kept.get(path, (value, 0))
                self._kept[path] = value, path.stat().st_size
                self._total += self._kept[path][1] - known
        if trial.state != TrialState.COMPLETE:  # its last model may be written after this
            self._ended_early.extend(ended)
        self._shrink(self._limit)

    def _shrink(self, limit: float) -> None:
        while self._total > limit and self._kept:
            worst = min(self._kept, key=lambda path: self._kept[path][0])
            self._total -= self._kept.pop(worst)[1]
            worst.unlink()
