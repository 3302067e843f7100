"""What finished trials leave on disk: only best models, and of the search's own trials only so many gigabytes."""

from optuna.trial import FrozenTrial

from search.config.search_config import CheckpointsSection
from search.study.names import Stage
from search.study.trial_queue import RunningTrial
from trainables.checkpoints import forget_last
from trainables.files import AnyPath, as_path


class CheckpointCleanup:
    """Removes, after each trial, what only an unfinished training needs, and the worst models beyond the limit.

    The models of confirmations and final trainings are never removed.
    """

    def __init__(self, checkpoints: CheckpointsSection) -> None:
        self._limit = None if checkpoints.max_gb is None else checkpoints.max_gb * 1e9
        self._kept: list[tuple[float, AnyPath]] = []

    def __call__(self, job: RunningTrial, trial: FrozenTrial) -> None:
        """Take the news of a job."""
        if not trial.state.is_finished():
            return
        forget_last(job.spec.directory)
        if job.stage == Stage.SEARCH and self._limit is not None:
            worst_first = trial.value if trial.value is not None else float("-inf")
            self._kept += [(worst_first, path) for path in as_path(job.spec.directory).rglob("attempt-*/best.pt")]
            self._shrink(self._limit)

    def _shrink(self, limit: float) -> None:
        self._kept.sort(key=lambda kept: kept[0])
        total = sum(path.stat().st_size for _, path in self._kept)
        while total > limit and self._kept:
            _, path = self._kept.pop(0)
            total -= path.stat().st_size
            path.unlink()
