"""Pruners, and the rules by which they compare trials.

Optuna's own pruners are not used: they read all trials of a study at every step, and under Hyperband they show a
sampler the trials of one bracket only. The tests check that these decide in the same way.
"""

import math
from abc import ABC, abstractmethod
from binascii import crc32
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import ClassVar

from optuna.trial import FrozenTrial, TrialState, create_trial

from trainables.errors import counted

# The rules. The values of a study's trials are kept sorted, so that a comparison costs a few look-ups.


REDUCTION_FACTOR = 2


class Halving:
    """Successive halving: a trial continues if it is among the best max(⌊n / 2⌋, 1) of the n at its rung so far.

    Without rungs no trial is pruned. Rounding up instead of down would train the best of 16 trials to its end more
    often (.95 instead of .91 of the time, .87 instead of .77 if values are noisy) and take 17 % more epochs. The chosen
    trial would be .01 to .06 standard deviations better; three more trials, rounded down, take as many epochs and gain
    .07 to .09 (``make bench-statistics``).
    """

    def __init__(
        self, rungs: Sequence[Sequence[int]] = ((),), bracket_of: Callable[[int], int] = lambda number: 0
    ) -> None:
        self._rungs = rungs
        self._bracket_of = bracket_of
        self._values: dict[tuple[int, int], list[float]] = defaultdict(list)

    def add(self, trial: FrozenTrial) -> None:
        """Add a stored trial: every value at a rung, no matter how the trial ended."""
        for step, value in trial.intermediate_values.items():
            self._count(trial.number, step, value)

    def _count(self, number: int, step: int, value: float) -> list[float]:
        """Add a value to its rung; return the sorted values, empty if ``step`` is not a rung of the trial's bracket."""
        bracket = self._bracket_of(number)
        if step not in self._rungs[bracket]:
            return []
        values = self._values[bracket, step]
        insort(values, value)
        return values

    def reason(self, number: int, step: int, value: float) -> str | None:
        """Compare the value of a trial after ``step`` with those at the same rung; return the reason to prune it.

        The result is None if it continues; the best one always does.
        """
        values = self._count(number, step, value)
        if not values or value >= values[-max(len(values) // REDUCTION_FACTOR, 1)]:
            return None
        rank = len(values) - bisect_right(values, value) + 1
        return f"ranked {rank} of {len(values)} at this rung; the top half continues"

    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        """Return the next rung after ``step`` and the lowest value that would pass there, with this trial counted.

        The value is None if there is nothing to compare with yet; the result is None if no comparison follows.
        """
        bracket = self._bracket_of(number)
        later = [rung for rung in self._rungs[bracket] if rung > step]
        if not later:
            return None
        values = self._values.get((bracket, min(later)), [])
        place = max((len(values) + 1) // REDUCTION_FACTOR, 1)
        return min(later), values[-place] if place <= len(values) else None

    def end(self, trial: FrozenTrial) -> None:
        """Do nothing when a trial ends: its values were added when they were reported."""


class BelowMedian:
    """The median rule: from step ``first`` on, a value below the median of the complete trials at that step is pruned.

    It needs ``least`` complete trials; ``unit`` is the name of a step.
    """

    def __init__(self, first: int, least: int, unit: str) -> None:
        self._first = first
        self._unit = unit
        self._least = least
        self._complete = 0
        self._values: dict[int, list[float]] = defaultdict(list)

    def add(self, trial: FrozenTrial) -> None:
        """Add the values of a complete trial."""
        self.end(trial)

    def reason(self, number: int, step: int, value: float) -> str | None:
        """Compare the value with the median; it is not added before the trial is complete."""
        median = self._median(step)
        if step < self._first or median is None or value >= median:
            return None
        count = len(self._values[step])
        return f"was below {median:.4f}, the median of the {count} complete trials after this {self._unit}"

    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        """Return the next step and the median there."""
        following = max(self._first, step + 1)
        return following, self._median(following)

    def _median(self, step: int) -> float | None:
        """Return the median of the complete trials at ``step``; None if there are too few."""
        values = self._values.get(step)
        if self._complete < self._least or not values:
            return None
        middle, odd = divmod(len(values), 2)
        return values[middle] if odd else (values[middle - 1] + values[middle]) / 2

    def end(self, trial: FrozenTrial) -> None:
        """Add the values of a complete trial."""
        if trial.state == TrialState.COMPLETE:
            self._complete += 1
            for step, value in trial.intermediate_values.items():
                insort(self._values[step], value)


PruningRule = Halving | BelowMedian
"""The values of one study's trials so far, and the decision which trials end early."""

# The pruners: the steps at which trials are compared, in numbers and in words.

ENOUGH_TRIALS = 200
"""The number of simulated trials that estimates the mean steps of a trial within a few per cent."""

COMPLETE_FOR_MEDIAN = 4
"""The number of complete trials that the median rule needs."""


@dataclass(frozen=True, kw_only=True)
class Pruner(ABC):
    """A plan of comparisons for trials of ``steps`` epochs or folds."""

    steps: int
    unit: str = "epoch"
    summary: ClassVar[str]

    @property
    def first(self) -> int:
        """The step of the first comparison: an eighth of the steps, but at least the second.

        After one epoch a value mostly depends on the learning rate, and after one fold on its classes.
        """
        return max(2, -(-self.steps // REDUCTION_FACTOR**3))

    @property
    def plan(self) -> str:
        """The comparisons in words."""
        if self.first < self.steps:
            return self._plan()
        return f"no trial is pruned, as a training has only {counted(self.steps, self.unit)}"

    def rule(self, study: str) -> PruningRule:
        """Return the rule for a new study with this name."""
        return self._rule(study) if self.first < self.steps else Halving()

    def expected_steps(self, trials: int) -> float:
        """Estimate the mean steps of a study's trials, if their values are random and constant over the steps.

        A search whose trials improve over time trains more.
        """
        draw = Random(0)
        steps: list[int] = []
        for _ in range(max(1, ENOUGH_TRIALS // max(1, trials))):
            comparison = self.rule("expected")
            for number in range(trials):
                value = draw.random()
                last = self._last_step(comparison, number, value)
                state = TrialState.PRUNED if last < self.steps else TrialState.COMPLETE
                values = dict.fromkeys(range(1, last + 1), value)
                comparison.end(create_trial(state=state, value=value, intermediate_values=values))
                steps.append(last)
        return fmean(steps) if steps else self.steps

    def _last_step(self, comparison: PruningRule, number: int, value: float) -> int:
        return next((step for step in range(1, self.steps) if comparison.reason(number, step, value)), self.steps)

    @property
    def milestones(self) -> tuple[int, ...]:
        """The step of the first comparison and its doubles."""
        plan = []
        rung = self.first
        while rung < self.steps:
            plan.append(rung)
            rung *= REDUCTION_FACTOR
        return tuple(plan)

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps after which halving compares trials; empty for other pruners."""
        return ()

    @abstractmethod
    def _plan(self) -> str: ...

    @abstractmethod
    def _rule(self, study: str) -> PruningRule: ...


class Unpruned(Pruner):
    """A pruner that compares nothing."""

    summary = "every trial is trained to its end"
    milestones = ()

    @property
    def plan(self) -> str:
        """The plan in words."""
        return "no trial is pruned"

    def _plan(self) -> str:
        return self.plan

    def _rule(self, study: str) -> PruningRule:
        return Halving()


class SuccessiveHalving(Pruner):
    """Asynchronous successive halving (Li et al. 2020)."""

    summary = "asynchronous successive halving: at each rung the top half of the trials so far continues"

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps after which trials are compared."""
        return self.milestones

    def _plan(self) -> str:
        return f"{self._after(self.rungs)} the top half continues"

    def _after(self, rungs: Sequence[int]) -> str:
        return f"after {self.unit}{'s' if len(rungs) > 1 else ''} {', '.join(map(str, rungs))}"

    def _rule(self, study: str) -> PruningRule:
        return Halving([self.rungs])


class Hyperband(SuccessiveHalving):
    """Asynchronous Hyperband (Li et al. 2018): brackets of successive halving, each starting one rung later.

    A trial's bracket is a hash of its study's name and its number, so that it stays the same after a restart.
    """

    summary = "Hyperband: brackets of successive halving, each starting one rung later; the last one never prunes"

    @property
    def brackets(self) -> tuple[tuple[tuple[int, ...], float], ...]:
        """The rungs of each bracket and its share of the trials."""
        weights = self._weights
        return tuple((self.rungs[bracket:], weight / sum(weights)) for bracket, weight in enumerate(weights))

    @property
    def _weights(self) -> list[int]:
        count = int(math.log2(self.steps / self.first)) + 1
        return [
            math.ceil(count * REDUCTION_FACTOR ** (count - 1 - bracket) / (count - bracket)) for bracket in range(count)
        ]

    def bracket_of(self, study: str, number: int) -> int:
        """Return the bracket of trial ``number`` of the study with this name, the same one as Optuna."""
        left = crc32(f"{study}_{number}".encode()) % sum(self._weights)
        for bracket, weight in enumerate(self._weights):
            left -= weight
            if left < 0:
                return bracket
        raise AssertionError("the remainder is below the sum")

    def _plan(self) -> str:
        parts = [
            f"{share:.0%} of the trials are compared {self._after(rungs)}" if rungs else f"{share:.0%} are never pruned"
            for rungs, share in self.brackets
        ]
        return f"{', '.join(parts)}; each time the top half of a bracket continues"

    def _rule(self, study: str) -> PruningRule:
        rungs = [rungs for rungs, _ in self.brackets]
        return Halving(rungs, lambda number: self.bracket_of(study, number))


class Median(Pruner):
    """The median rule (Golovin et al. 2017)."""

    summary = "the median rule: trials below the median of the complete trials at the same step are pruned"

    def _plan(self) -> str:
        return (
            f"after each {self.unit} from {self.first} on, once {COMPLETE_FOR_MEDIAN} trials are complete, trials "
            f"below their median at that {self.unit} are pruned"
        )

    def _rule(self, study: str) -> PruningRule:
        return BelowMedian(self.first, COMPLETE_FOR_MEDIAN, self.unit)
