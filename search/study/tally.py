"""How many trials of a study are in which state, and how many epochs they trained: kept up to date, never recounted."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from optuna.trial import FrozenTrial, TrialState

from search.study.records import count_epochs


@dataclass(kw_only=True)
class Tally:
    """``states`` counts trials, ``epochs`` what all of them reported, ``epochs_running`` of that those that run.

    ``best`` is the highest value of a complete trial, None before there is one.
    """

    states: Counter[TrialState] = field(default_factory=Counter)
    epochs: int = 0
    epochs_running: int = 0
    best: float | None = None

    @classmethod
    def of(cls, trials: Iterable[FrozenTrial]) -> "Tally":
        """The tally of ``trials``."""
        tally = cls()
        for trial in trials:
            tally.add(trial)
        return tally

    def add(self, trial: FrozenTrial) -> None:
        """Count a trial."""
        self._count(trial, 1)

    def replace(self, before: FrozenTrial, after: FrozenTrial) -> None:
        """Count a trial as it is now instead of as it was."""
        self._count(before, -1)
        self._count(after, 1)

    def _count(self, trial: FrozenTrial, sign: int) -> None:
        epochs = sign * count_epochs(trial)
        self.states[trial.state] += sign
        self.epochs += epochs
        if trial.state == TrialState.RUNNING:
            self.epochs_running += epochs
        if trial.state == TrialState.COMPLETE and trial.value is not None:  # complete trials stay as they are
            self.best = trial.value if self.best is None else max(self.best, trial.value)

    @property
    def trials(self) -> int:
        """All trials."""
        return self.states.total()

    @property
    def waiting(self) -> int:
        """Trials that are enqueued and have not begun."""
        return self.states[TrialState.WAITING]

    @property
    def running(self) -> int:
        """Trials that run."""
        return self.states[TrialState.RUNNING]

    @property
    def started(self) -> int:
        """Trials that have begun, also those that have ended."""
        return self.trials - self.waiting

    @property
    def ended(self) -> int:
        """Trials that are complete, pruned or failed."""
        return self.started - self.running
