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
from typing import Self

from optuna.trial import FrozenTrial

from trainables.common.errors import counted

REDUCTION_FACTOR = 2


class Pruner:
    """A rule that ends bad trials of ``study``, which train ``steps`` epochs in all folds; this one ends none."""

    def __init__(self, *, steps: int, study: str = "") -> None:
        self.steps, self._study = steps, study

    def rule(self, study: str) -> Self:
        """Return the pruner of a new study with this name."""
        return type(self)(steps=self.steps, study=study)

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps after which trials are compared."""
        return ()

    @property
    def plan(self) -> str:
        """The comparisons in words."""
        return "no trial is pruned"

    def add(self, trial: FrozenTrial) -> None:
        """Add the values of a stored trial, no matter how it ended."""

    def reason(self, number: int, step: int, value: float) -> str | None:
        """Compare the value of trial ``number`` after ``step`` with others; return the reason to prune it, or None."""
        return None

    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        """Return the next comparison after ``step`` and the lowest value that would pass it, with this trial counted.

        The value is None if there is nothing to compare with yet; the result is None if no comparison follows.
        """
        return None


class SuccessiveHalving(Pruner):
    """Asynchronous successive halving (Li et al. 2020).

    A trial continues if it is among the best max(⌊n / 2⌋, 1) of the n at its rung so far. Rounding up would take 17 %
    more epochs, with which three more trials gain more (``python -m benchmarks statistics``).
    """

    def __init__(self, *, steps: int, study: str = "") -> None:
        super().__init__(steps=steps, study=study)
        self._values: dict[tuple[int, int], list[float]] = defaultdict(list)  # sorted, by bracket and step

    @property
    def first(self) -> int:
        """The first rung: an eighth of the steps, but at least the second."""
        return max(2, -(-self.steps // REDUCTION_FACTOR**3))  # after one epoch a value mostly shows the learning rate

    @property
    def rungs(self) -> tuple[int, ...]:
        """The first rung and its doubles."""
        doubles = (self.first * REDUCTION_FACTOR**n for n in count())
        return tuple(takewhile(lambda step: step < self.steps, doubles))

    @property
    def plan(self) -> str:
        if self.rungs:
            return self._plan()
        return f"no trial is pruned, as a training has only {counted(self.steps, 'epoch')}"

    def _plan(self) -> str:
        return f"{self._after(self.rungs)} the top half continues"

    def _after(self, rungs: Sequence[int]) -> str:
        return f"after epoch{'s' if len(rungs) > 1 else ''} {', '.join(map(str, rungs))}"

    def bracket_of(self, number: int) -> int:
        """Return the bracket of trial ``number``; the rungs of bracket n begin with the (n + 1)th."""
        return 0

    def add(self, trial: FrozenTrial) -> None:
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
