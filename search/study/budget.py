"""The limits on the trials and epochs that a study trains."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from search.study.sampler import READY, WAIT, Availability, Sampler
from search.trials import Tally

MS = 3_600_000
"""Milliseconds of an hour."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limits of a loss's study: at most ``trials`` trials and, if set, ``epochs`` epochs and ``hours`` of training.

    A finished trial counts with the epochs that it trained, a running one with a whole training, ``epochs_each``; if
    it is pruned, the rest becomes available again. Thus a loss trains its budget and less than one training more, no
    matter how many trials run at once. Hours are the sum over all recorded epochs, not the time of the clock, and the
    rest of a running trial is predicted from their mean: so they count the same after a kill, and with any number of
    trials at once. ``sampler`` may have nothing to propose for now, or at all.
    """

    trials: int
    epochs: int | None = None
    epochs_each: int = 0
    hours: float | None = None
    sampler: Sampler | None = None

    def availability(self, tally: Tally, trials: Callable[[], Sequence[FrozenTrial]]) -> Availability:
        """Return whether another trial of the study may start; ``trials`` lists its trials."""
        if tally.started >= self.trials:
            return Availability(open=False, over=f"{self.trials} trials were asked for")
        if self.epochs is not None:
            if tally.epochs >= self.epochs:
                over = f"{tally.epochs} epochs are trained, and its budget is {self.epochs}"
                return Availability(open=False, over=over)
            if tally.epochs + tally.running * self.epochs_each - tally.epochs_running >= self.epochs:
                return WAIT
        if self.hours is not None:
            left_ms = self._left_ms(tally)
            if left_ms <= 0:
                over = f"{tally.work_ms / MS:.2f} hours are trained, and its budget is {self.hours:g}"
                return Availability(open=False, over=over)
            to_train = tally.running * self.epochs_each - tally.epochs_running
            if tally.epochs and to_train * tally.work_ms / tally.epochs >= left_ms:
                return WAIT
        # Trial 0 is not the sampler's: it is enqueued, or about to be.
        return READY if self.sampler is None or not tally.started else self.sampler.availability(trials)

    def _left_ms(self, tally: Tally) -> float:
        assert self.hours is not None
        return self.hours * MS - tally.work_ms

    def epochs_left(self, tally: Tally, seconds: float | None) -> float:
        """Return the maximum number of epochs left, infinity without a limit; ``seconds`` is the time of an epoch."""
        left: list[float] = [] if self.epochs is None else [self.epochs - tally.epochs]
        if self.hours is not None and seconds:
            left.append(self._left_ms(tally) / 1000 / seconds)
        return max(0.0, min(left, default=math.inf))

    @property
    def most(self) -> int:
        """The maximum number of trials."""
        size = self.sampler.size if self.sampler else None
        return self.trials if size is None else min(self.trials, size)

    def to_start(self, tally: Tally) -> int:
        """Return the maximum number of trials that may still start after those that ``tally`` counts as started."""
        return max(0, self.most - tally.started)

    def problems(self) -> list[str]:
        """Return a sentence for each limit that cannot work."""
        found = self.sampler.problems() if self.sampler else []
        if self.epochs is not None and self.epochs < self.epochs_each:
            found.append(
                f"search.epochs gives each loss {self.epochs} and one training takes {self.epochs_each}; give each a "
                "budget for the default at least, or leave it null."
            )
        return found

    def done(self, trials: Sequence[FrozenTrial], tally: Tally | None = None) -> bool:
        """Return True if there is nothing left to start or to wait for; ``tally`` saves counting the ``trials``."""
        tally = tally or Tally.of(trials)
        return not tally.running and self.availability(tally, lambda: trials).over is not None

    def early_end(self, trials: Sequence[FrozenTrial]) -> str | None:
        """Return why a finished search has fewer than ``trials`` trials; None if it has all or is not finished."""
        running = any(trial.state == TrialState.RUNNING for trial in trials)
        return None if running or len(trials) >= self.trials else self.over(trials)

    def over(self, trials: Sequence[FrozenTrial]) -> str | None:
        """Return why the study with these ``trials`` starts no more; None if it will, or may when others have ended."""
        return self.availability(Tally.of(trials), lambda: trials).over
