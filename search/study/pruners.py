"""Pruners: the plan of each in words, and the comparison it makes."""

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

from trainables.spec import derived_seed

# What a trial's values are compared with while it runs, kept sorted: each comparison costs a few look-ups.
#
# The rules are those of Optuna's pruners, which go through all trials of the study each time.


class PruningRule(ABC):
    """The values of one study that count, as far as its trials have come."""

    @abstractmethod
    def add(self, trial: FrozenTrial) -> None:
        """Take a stored trial, with all that it has reported."""

    @abstractmethod
    def reason(self, number: int, step: int, value: float) -> str | None:
        """Why trial ``number`` ends after ``step``, which it reports with ``value``; None where it goes on."""

    @abstractmethod
    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        """When trial ``number``, which reached ``step``, is compared next, and the least value that would go on now.

        The value is None where nothing is compared yet, and all of it where no comparison follows.
        """

    @abstractmethod
    def end(self, trial: FrozenTrial) -> None:
        """A trial that was reported step by step has ended."""


class NoPruning(PruningRule):
    """No trial ends early."""

    def add(self, trial: FrozenTrial) -> None:
        """Nothing counts."""

    def reason(self, number: int, step: int, value: float) -> str | None:
        """Every trial goes on."""
        return None

    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        """There is none."""
        return None

    def end(self, trial: FrozenTrial) -> None:
        """Nothing counts."""


class Halving(PruningRule):
    """At each rung of its bracket a trial goes on if it is among the best ⌊n / factor⌋ of the n that came, or first.

    Rounding up trains the best of 16 trials to its end more often, .95 and not .91 of the time, .87 and not .77 where
    values are noisy, and takes 17 % more epochs. What is chosen is then .01 to .06 deviations better; with three more
    trials instead, rounded down and in as many epochs, it is .07 to .09 better (``make bench-statistics``).
    """

    def __init__(self, rungs: Sequence[Sequence[int]], bracket_of: Callable[[int], int], factor: int) -> None:
        self._rungs = rungs
        self._bracket_of = bracket_of
        self._factor = factor
        self._values: dict[tuple[int, int], list[float]] = defaultdict(list)

    def add(self, trial: FrozenTrial) -> None:
        """Every value that was reported at a rung counts, however its trial ended."""
        for step, value in trial.intermediate_values.items():
            self._count(trial.number, step, value)

    def _count(self, number: int, step: int, value: float) -> list[float]:
        """The values of a rung with this one, sorted; none where ``step`` is no rung of the trial's bracket."""
        bracket = self._bracket_of(number)
        if step not in self._rungs[bracket]:
            return []
        values = self._values[bracket, step]
        insort(values, value)
        return values

    def reason(self, number: int, step: int, value: float) -> str | None:
        """Its rank among those at this rung, the first of equals; the best one goes on also where it is alone."""
        values = self._count(number, step, value)
        if not values or value >= values[-max(len(values) // self._factor, 1)]:
            return None
        rank = len(values) - bisect_right(values, value) + 1
        return f"was number {rank} of {len(values)} at this rung, and the best half goes on"

    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        """The next rung of its bracket, and the value that is in the best part of those there with this trial's."""
        bracket = self._bracket_of(number)
        later = [rung for rung in self._rungs[bracket] if rung > step]
        if not later:
            return None
        values = self._values.get((bracket, min(later)), [])
        place = max((len(values) + 1) // self._factor, 1)
        return min(later), values[-place] if place <= len(values) else None

    def end(self, trial: FrozenTrial) -> None:
        """Its values count since they were reported."""


class BelowMedian(PruningRule):
    """From step ``first`` on a trial ends if its value is below the median of the complete trials at the same step.

    It needs ``least`` complete trials; a step is called ``unit``.
    """

    def __init__(self, first: int, least: int, unit: str) -> None:
        self._first = first
        self._unit = unit
        self._least = least
        self._complete = 0
        self._values: dict[int, list[float]] = defaultdict(list)

    def add(self, trial: FrozenTrial) -> None:
        """Complete trials count."""
        self.end(trial)

    def reason(self, number: int, step: int, value: float) -> str | None:
        """The median that it is below."""
        median = self._median(step)
        if step < self._first or median is None or value >= median:
            return None
        count = len(self._values[step])
        return f"was below {median:.4f}, the median of the {count} complete trials after this {self._unit}"

    def next_rung(self, number: int, step: int) -> tuple[int, float | None] | None:
        """The next step, and the median there."""
        following = max(self._first, step + 1)
        return following, self._median(following)

    def _median(self, step: int) -> float | None:
        """Of the complete trials after ``step``; None before there are enough."""
        values = self._values.get(step)
        if self._complete < self._least or not values:
            return None
        middle, odd = divmod(len(values), 2)
        return values[middle] if odd else (values[middle - 1] + values[middle]) / 2

    def end(self, trial: FrozenTrial) -> None:
        """Complete trials count."""
        if trial.state == TrialState.COMPLETE:
            self._complete += 1
            for step, value in trial.intermediate_values.items():
                insort(self._values[step], value)


# Which trials end early: each pruner with its plan in words, and what it compares a study's trials with.
#
# Optuna's own pruners are not used: they go through all trials of a study at every step, and under Hyperband they
# show a
# sampler the trials of one bracket alone. The tests hold that ours decide as they do.

REDUCTION_FACTOR = 2
ENOUGH_TRIALS = 200
"""So many made-up trials say how many steps a rule lets a trial train, within some per cent."""

COMPLETE_FOR_MEDIAN = 4
"""How many trials have to be complete before their median means something."""


@dataclass(frozen=True, kw_only=True)
class Pruner(ABC):
    """How trials of ``steps`` epochs, or folds, are compared while they run."""

    steps: int
    unit: str = "epoch"
    summary: ClassVar[str]

    @property
    def first(self) -> int:
        """The step of the first comparison: an eighth of the steps, and not before the second.

        One epoch says how fast a learning rate is and not how good, and one fold how hard its classes are.
        """
        return max(2, -(-self.steps // REDUCTION_FACTOR**3))

    @property
    def plan(self) -> str:
        """What is compared after which steps, in words."""
        return self._plan() if self.first < self.steps else f"no trial is pruned, {self.steps} {self.unit}s are too few"

    def rule(self, study: str) -> PruningRule:
        """What the trials of the study with this name are compared with, before there are any."""
        return self._rule(study) if self.first < self.steps else NoPruning()

    def expected_steps(self, trials: int) -> float:
        """The mean steps of so many trials if values, the same after all steps, say nothing of the next trial's.

        So a search whose trials become better trains more.
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
        """The first comparison's step, and each time the double of it."""
        plan = []
        rung = self.first
        while rung < self.steps:
            plan.append(rung)
            rung *= REDUCTION_FACTOR
        return tuple(plan)

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps after which trials are compared by halving; none for other rules."""
        return ()

    @abstractmethod
    def _plan(self) -> str: ...

    @abstractmethod
    def _rule(self, study: str) -> PruningRule: ...


class Unpruned(Pruner):
    """No comparison at all."""

    summary = "every trial is trained to its end"
    milestones = ()

    @property
    def plan(self) -> str:
        """That nothing is pruned."""
        return "no trial is pruned"

    def _plan(self) -> str:
        return self.plan

    def _rule(self, study: str) -> PruningRule:
        return NoPruning()


class SuccessiveHalving(Pruner):
    """Asynchronous successive halving (Li et al. 2020)."""

    summary = "asynchronous successive halving: at each rung the best half of the trials so far goes on"

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps after which trials are compared."""
        return self.milestones

    def _plan(self) -> str:
        return f"{self._after(self.rungs)} the best half goes on"

    def _after(self, rungs: Sequence[int]) -> str:
        return f"after {self.unit}{'s' if len(rungs) > 1 else ''} {', '.join(map(str, rungs))}"

    def _rule(self, study: str) -> PruningRule:
        return Halving([self.rungs], lambda number: 0, REDUCTION_FACTOR)


class Hyperband(SuccessiveHalving):
    """Hyperband (Li et al. 2018), asynchronously: brackets of successive halving, each starting one rung later.

    A trial's bracket is a hash of its study's name and its number, so it is the same after a restart.
    """

    summary = "Hyperband: brackets of successive halving that start later and later, and one that never prunes"

    @property
    def brackets(self) -> tuple[tuple[tuple[int, ...], float], ...]:
        """Each bracket's rungs, and the share of the trials that it is given."""
        weights = self._weights
        return tuple((self.rungs[bracket:], weight / sum(weights)) for bracket, weight in enumerate(weights))

    @property
    def _weights(self) -> list[int]:
        count = int(math.log2(self.steps / self.first)) + 1
        return [
            math.ceil(count * REDUCTION_FACTOR ** (count - 1 - bracket) / (count - bracket)) for bracket in range(count)
        ]

    def bracket_of(self, study: str, number: int) -> int:
        """The bracket of trial ``number`` of the study with this name, as Optuna draws it."""
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
        return f"{', '.join(parts)}; each time the best half of a bracket goes on"

    def _rule(self, study: str) -> PruningRule:
        rungs = [rungs for rungs, _ in self.brackets]
        return Halving(rungs, lambda number: self.bracket_of(study, number), REDUCTION_FACTOR)


class Median(Pruner):
    """The median rule (Golovin et al. 2017)."""

    summary = "the median rule: what is worse than the median of the complete trials at the same step ends"

    def _plan(self) -> str:
        return (
            f"after each {self.unit} from {self.first} on, once {COMPLETE_FOR_MEDIAN} trials are complete, what is "
            f"below their median at that {self.unit} ends"
        )

    def _rule(self, study: str) -> PruningRule:
        return BelowMedian(self.first, COMPLETE_FOR_MEDIAN, self.unit)


PRUNERS: dict[str, type[Pruner]] = {
    "asha": SuccessiveHalving,
    "hyperband": Hyperband,
    "median": Median,
    "none": Unpruned,
}


def to_audit(trials: Sequence[FrozenTrial], count: int, *, seed: int, loss: str) -> list[FrozenTrial]:
    """``count`` of the pruned ones among ``trials``, or all of them where they are fewer.

    They are those of the smallest random numbers, each drawn from the search's ``seed``, the loss and the trial's
    number: what they came to has no part in it.
    """
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    return sorted(pruned, key=lambda trial: derived_seed(seed, "audit", loss, trial.number))[:count]
