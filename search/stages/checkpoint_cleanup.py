"""What finished trials leave on disk: only best models, and of the search's own trials only so many gigabytes."""

from optuna.trial import FrozenTrial

from search.config.sections.storage import CheckpointsSection
from search.study.names import Stage
from search.study.trial_queue import RunningTrial, TrialListener
from trainables.files import AnyPath, as_path
from trainables.training.checkpoints import forget_last


class CheckpointCleanup(TrialListener):
    """Removes, after each trial, what only an unfinished training needs, and the worst models beyond the limit.

    The models of confirmations and final trainings are never removed.
    """

    def __init__(self, checkpoints: CheckpointsSection) -> None:
        self._limit = None if checkpoints.max_gb is None else checkpoints.max_gb * 1e9
        self._kept: list[tuple[float, AnyPath]] = []

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Remove what a trial that ended does not need any more."""
        forget_last(running.spec.directory)
        if running.stage is Stage.SEARCH and self._limit is not None:
            worst_first = trial.value if trial.value is not None else float("-inf")
            best = as_path(running.spec.directory).rglob("attempt-*/best.pt")
            self._kept += [(worst_first, path) for path in best]
            self._shrink(self._limit)

    def _shrink(self, limit: float) -> None:
        self._kept.sort(key=lambda kept: kept[0])
        total = sum(path.stat().st_size for _, path in self._kept)
        while total > limit and self._kept:
            _, path = self._kept.pop(0)
            total -= path.stat().st_size
            path.unlink()
