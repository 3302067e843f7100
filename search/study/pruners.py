"""Pruners: the steps at which trials are compared, in words and with the values of one study's trials so far.

Optuna's own pruners are not used: they read all trials of a study at every step, and under Hyperband they show a
sampler the trials of one bracket only. The tests check that these decide in the same way.
"""

import math
from binascii import crc32
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence
from itertools import count, takewhile
from statistics import median
from typing import Self

from optuna.trial import FrozenTrial, TrialState

from trainables.common.errors import counted

REDUCTION_FACTOR = 2

COMPLETE_FOR_MEDIAN = 4
"""The number of complete trials that the median rule needs."""


class Pruner:
    """Comparisons of the trials of ``study``, which train ``steps`` epochs, those of all folds."""

    def __init__(self, *, steps: int, study: str = "") -> None:
        self.steps, self._study = steps, study
        self._values: dict[tuple[int, int], list[float]] = defaultdict(list)  # sorted, by bracket and step

    def rule(self, study: str) -> Self:
        """Return the pruner of a new study with this name."""
        return type(self)(steps=self.steps, study=study)

    # What is compared, before there are trials.

    @property
    def first(self) -> int:
        """The step of the first comparison: an eighth of the steps, but at least the second."""
        return max(2, -(-self.steps // REDUCTION_FACTOR**3))  # after one epoch a value mostly shows the learning rate

    @property
    def milestones(self) -> tuple[int, ...]:
        """The step of the first comparison and its doubles."""
        doubles = (self.first * REDUCTION_FACTOR**n for n in count())
        return tuple(takewhile(lambda step: step < self.steps, doubles))

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps after which halving compares trials; empty for other pruners."""
        return ()

    @property
    def plan(self) -> str:
        """The comparisons in words."""
        if self.first < self.steps:
            return self._plan()
        return f"no trial is pruned, as a training has only {counted(self.steps, 'epoch')}"

    def _plan(self) -> str:
        return "no trial is pruned"

    # The comparisons.

    def add(self, trial: FrozenTrial) -> None:
        """Add the values of a stored trial."""
        self.end(trial)

    def end(self, trial: FrozenTrial) -> None:
        """Note that a trial has ended."""

    def reason(self, number: int, step: int, value: float) -> str | None:
        """Compare the value of trial ``number`` after ``step`` with others; return the reason to prune it, or None."""
        return None

    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        """Return the next comparison after ``step`` and the lowest value that would pass it, with this trial counted.

        The value is None if there is nothing to compare with yet; the result is None if no comparison follows.
        """
        return None


class Unpruned(Pruner):
    """A pruner that compares nothing."""

    milestones = ()
    plan = "no trial is pruned"


class SuccessiveHalving(Pruner):
    """Asynchronous successive halving (Li et al. 2020).

    A trial continues if it is among the best max(⌊n / 2⌋, 1) of the n at its rung so far. Rounding up would take 17 %
    more epochs, with which three more trials gain more (``python -m benchmarks statistics``).
    """

    @property
    def rungs(self) -> tuple[int, ...]:
        return self.milestones

    def _plan(self) -> str:
        return f"{self._after(self.rungs)} the top half continues"

    def _after(self, rungs: Sequence[int]) -> str:
        return f"after epoch{'s' if len(rungs) > 1 else ''} {', '.join(map(str, rungs))}"

    def bracket_of(self, number: int) -> int:
        """Return the bracket of trial ``number``; the rungs of bracket n begin with the (n + 1)th."""
        return 0

    def add(self, trial: FrozenTrial) -> None:
        """Add a stored trial: every value at a rung, no matter how the trial ended."""
        for step, value in trial.intermediate_values.items():
            self._count(trial.number, step, value)

    def _count(self, number: int, step: int, value: float) -> list[float]:
        """Add a value to its rung; return the sorted values, empty if ``step`` is not a rung of the trial's bracket."""
        bracket = self.bracket_of(number)
        if step not in self.rungs[bracket:]:
            return []
        values = self._values[bracket, step]
        insort(values, value)
        return values

    def reason(self, number: int, step: int, value: float) -> str | None:
        values = self._count(number, step, value)
        if not values or value >= values[-max(len(values) // REDUCTION_FACTOR, 1)]:
            return None
        rank = len(values) - bisect_right(values, value) + 1
        return f"ranked {rank} of {len(values)} at this rung; the top half continues"

    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        bracket = self.bracket_of(number)
        later = [rung for rung in self.rungs[bracket:] if rung > step]
        if not later:
            return None
        values = self._values.get((bracket, min(later)), [])
        place = max((len(values) + 1) // REDUCTION_FACTOR, 1)
        return min(later), values[-place] if place <= len(values) else None


class Hyperband(SuccessiveHalving):
    """Asynchronous Hyperband (Li et al. 2018): brackets of successive halving, each starting one rung later.

    A trial's bracket is a hash of its study's name and its number, so that it stays the same after a restart.
    """

    @property
    def _weights(self) -> list[int]:
        """The brackets' shares of the trials, times their sum."""
        count = int(math.log2(max(1.0, self.steps / self.first))) + 1
        return [
            math.ceil(count * REDUCTION_FACTOR ** (count - 1 - bracket) / (count - bracket)) for bracket in range(count)
        ]

    def bracket_of(self, number: int) -> int:
        """Return the bracket of trial ``number``, the same one as Optuna."""
        left = crc32(f"{self._study}_{number}".encode()) % sum(self._weights)
        for bracket, weight in enumerate(self._weights):
            left -= weight
            if left < 0:
                return bracket
        raise AssertionError("the remainder is below the sum")

    def _plan(self) -> str:
        parts = []
        for bracket, weight in enumerate(self._weights):
            share, rungs = f"{weight / sum(self._weights):.0%}", self.rungs[bracket:]
            parts.append(
                f"{share} of the trials are compared {self._after(rungs)}" if rungs else f"{share} are never pruned"
            )
        return f"{', '.join(parts)}; each time the top half of a bracket continues"


class Median(Pruner):
    """The median rule (Golovin et al. 2017): a value below the median of the complete trials at its step is pruned."""

    _complete = 0

    def _plan(self) -> str:
        return (
            f"after each epoch from {self.first} on, once {COMPLETE_FOR_MEDIAN} trials are complete, trials "
            "below their median at that epoch are pruned"
        )

    def end(self, trial: FrozenTrial) -> None:
        if trial.state == TrialState.COMPLETE:
            self._complete += 1
            for step, value in trial.intermediate_values.items():
                insort(self._values[0, step], value)

    def reason(self, number: int, step: int, value: float) -> str | None:
        bar = self._median(step)
        if bar is None or value >= bar:
            return None
        count = len(self._values[0, step])
        return f"was below the median of the {count} complete trials after this epoch"

    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        following = max(self.first, step + 1)
        return (following, self._median(following)) if self.first < self.steps else None

    def _median(self, step: int) -> float | None:
        """Return the median of the complete trials at ``step``; None if it is early or if there are too few."""
        values = self._values.get((0, step))
        if not values or self._complete < COMPLETE_FOR_MEDIAN or step < self.first or self.first >= self.steps:
            return None
        return median(values)
