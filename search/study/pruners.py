"""Which trials end early: each pruner with its plan in words, and what it compares a study's trials with.

Optuna's own pruners are not used: they go through all trials of a study at every step, and under Hyperband they show a
sampler the trials of one bracket alone. The tests hold that ours decide as they do.
"""

import math
from abc import ABC, abstractmethod
from binascii import crc32
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import ClassVar

from optuna.trial import TrialState, create_trial

from search.study.comparisons import BelowMedian, Comparison, Halving, NoComparison

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

    def comparison(self, study: str) -> Comparison:
        """What the trials of the study with this name are compared with, before there are any."""
        return self._comparison(study) if self.first < self.steps else NoComparison()

    def expected_steps(self, trials: int) -> float:
        """The mean steps of so many trials if values, the same after all steps, say nothing of the next trial's.

        So a search whose trials become better trains more.
        """
        draw = Random(0)
        steps: list[int] = []
        for _ in range(max(1, ENOUGH_TRIALS // max(1, trials))):
            comparison = self.comparison("expected")
            for number in range(trials):
                value = draw.random()
                last = self._last_step(comparison, number, value)
                state = TrialState.PRUNED if last < self.steps else TrialState.COMPLETE
                values = dict.fromkeys(range(1, last + 1), value)
                comparison.end(create_trial(state=state, value=value, intermediate_values=values))
                steps.append(last)
        return fmean(steps) if steps else self.steps

    def _last_step(self, comparison: Comparison, number: int, value: float) -> int:
        return next((step for step in range(1, self.steps) if comparison.reason(number, step, value)), self.steps)

    @abstractmethod
    def _plan(self) -> str: ...

    @abstractmethod
    def _comparison(self, study: str) -> Comparison: ...


class Unpruned(Pruner):
    """No comparison at all."""

    summary = "every trial is trained to its end"

    @property
    def plan(self) -> str:
        """That nothing is pruned."""
        return "no trial is pruned"

    def _plan(self) -> str:
        return self.plan

    def _comparison(self, study: str) -> Comparison:
        return NoComparison()


class SuccessiveHalving(Pruner):
    """Asynchronous successive halving (Li et al. 2020)."""

    summary = "asynchronous successive halving: at each rung the best half of the trials so far goes on"

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps after which trials are compared."""
        plan = []
        rung = self.first
        while rung < self.steps:
            plan.append(rung)
            rung *= REDUCTION_FACTOR
        return tuple(plan)

    def _plan(self) -> str:
        return f"{self._after(self.rungs)} the best half goes on"

    def _after(self, rungs: Sequence[int]) -> str:
        return f"after {self.unit}{'s' if len(rungs) > 1 else ''} {', '.join(map(str, rungs))}"

    def _comparison(self, study: str) -> Comparison:
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

    def _comparison(self, study: str) -> Comparison:
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

    def _comparison(self, study: str) -> Comparison:
        return BelowMedian(self.first, COMPLETE_FOR_MEDIAN, self.unit)


PRUNERS: dict[str, type[Pruner]] = {
    "asha": SuccessiveHalving,
    "hyperband": Hyperband,
    "median": Median,
    "none": Unpruned,
}
