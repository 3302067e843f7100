"""How many trials and epochs a study has trained, and when that is enough."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from optuna.trial import FrozenTrial, TrialState

from search.study.sampler import READY, WAIT, Availability, Sampler
from search.trials import count_epochs

# How many trials of a study are in which state, and how many epochs they trained: kept up to date, never recounted.


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


# How much of a loss's study is to be trained, and when it is enough.


@dataclass(frozen=True, kw_only=True)
class Budget:
    """At most ``trials`` trials, and with a budget no further one once ``epochs`` epochs are trained or promised.

    A trial that ended counts with the epochs that it trained, a running one with a whole training's ``epochs_each``:
    where it is pruned, the rest is free again. So a loss trains its budget and less than one training more, however
    many trials run side by side. ``sampler`` may have nothing to propose now, or nothing any more.
    """

    trials: int
    epochs: int | None = None
    epochs_each: int = 0
    sampler: Sampler | None = None

    def availability(self, trials: Sequence[FrozenTrial], tally: Tally | None = None) -> Availability:
        """Whether a further trial of the study with these ``trials`` may start; ``tally`` counts them, if kept."""
        tally = tally or Tally.of(trials)
        if tally.started >= self.trials:
            return Availability(open=False, over=f"{self.trials} trials were asked for")
        if self.epochs is not None:
            if tally.epochs >= self.epochs:
                over = f"{tally.epochs} epochs are trained, and its budget is {self.epochs}"
                return Availability(open=False, over=over)
            if tally.epochs + tally.running * self.epochs_each - tally.epochs_running >= self.epochs:
                return WAIT
        # Trial 0 is not the sampler's: it is enqueued, or about to be.
        return READY if self.sampler is None or not tally.started else self.sampler.availability(trials)

    @property
    def most(self) -> int:
        """How many trials there will be at most."""
        size = self.sampler.size if self.sampler else None
        return self.trials if size is None else min(self.trials, size)

    def to_start(self, tally: Tally) -> int:
        """How many further trials there may be at most, beside those that ``tally`` counts as begun."""
        return max(0, self.most - tally.started)

    def problems(self) -> list[str]:
        """What cannot work, a sentence each."""
        found = self.sampler.problems() if self.sampler else []
        if self.epochs is not None and self.epochs < self.epochs_each:
            found.append(
                f"search.epochs is {self.epochs} and one training takes {self.epochs_each}; give each loss a budget "
                "for the default at least, or leave it null."
            )
        return found

    def done(self, trials: Sequence[FrozenTrial]) -> bool:
        """Whether nothing is left to start or to wait for."""
        running = any(trial.state == TrialState.RUNNING for trial in trials)
        return self.availability(trials).over is not None and not running

    def early_end(self, trials: Sequence[FrozenTrial]) -> str | None:
        """Why a search that is done has fewer than ``trials`` trials; None where it has all, or goes on."""
        return self.availability(trials).over if self.done(trials) and len(trials) < self.trials else None
