"""Which trials end early: Optuna's pruners, each with its plan in words and the reason of what it did.

The study's own ``pruner`` stays empty: under Hyperband, Optuna would show a sampler the trials of one bracket alone,
and after a restart, until the first comparison, those of all.
"""

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from optuna import Study
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial, TrialState

REDUCTION_FACTOR = 2
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

    def reason(self, study: Study, trial: FrozenTrial) -> str | None:
        """Why ``trial`` ends after the step that it reported last; None where it goes on. Ask once a step."""
        if not self._rule.prune(study, trial):
            return None
        return self._reason_of(study, study.get_trials(deepcopy=False), trial.number)

    @cached_property
    def _rule(self) -> BasePruner:
        return self._build() if self.first < self.steps else NopPruner()

    @abstractmethod
    def _plan(self) -> str: ...

    @abstractmethod
    def _build(self) -> BasePruner: ...

    @abstractmethod
    def _reason_of(self, study: Study, trials: Sequence[FrozenTrial], number: int) -> str: ...


class Unpruned(Pruner):
    """No comparison at all."""

    summary = "every trial is trained to its end"

    @property
    def plan(self) -> str:
        """That nothing is pruned."""
        return "no trial is pruned"

    def _plan(self) -> str:
        return self.plan

    def _build(self) -> BasePruner:
        return NopPruner()

    def _reason_of(self, study: Study, trials: Sequence[FrozenTrial], number: int) -> str:
        raise AssertionError("nothing is pruned")


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

    def _build(self) -> BasePruner:
        return SuccessiveHalvingPruner(min_resource=self.first, reduction_factor=REDUCTION_FACTOR)

    def _reason_of(self, study: Study, trials: Sequence[FrozenTrial], number: int) -> str:
        own = trials[number].system_attrs
        rung = max(key for key in own if key.startswith("completed_rung_"))
        rivals = [trial.system_attrs[rung] for trial in trials if self._meet(study, trials[number], trial, rung)]
        better = sum(rival > own[rung] for rival in rivals)
        return f"was number {better + 1} of {len(rivals)} at this rung, and the best half goes on"

    def _meet(self, study: Study, trial: FrozenTrial, other: FrozenTrial, rung: str) -> bool:
        return rung in other.system_attrs


class Hyperband(SuccessiveHalving):
    """Hyperband (Li et al. 2018), asynchronously: brackets of successive halving, each starting one rung later.

    A trial's bracket is a hash of its study's name and its number, so it is the same after a restart.
    """

    summary = "Hyperband: brackets of successive halving that start later and later, and one that never prunes"

    @property
    def brackets(self) -> tuple[tuple[tuple[int, ...], float], ...]:
        """Each bracket's rungs, and the share of the trials that it is given."""
        count = int(math.log2(self.steps / self.first)) + 1
        weights = [
            math.ceil(count * REDUCTION_FACTOR ** (count - 1 - bracket) / (count - bracket)) for bracket in range(count)
        ]
        return tuple((self.rungs[bracket:], weight / sum(weights)) for bracket, weight in enumerate(weights))

    def _plan(self) -> str:
        parts = [
            f"{share:.0%} of the trials are compared {self._after(rungs)}" if rungs else f"{share:.0%} are never pruned"
            for rungs, share in self.brackets
        ]
        return f"{', '.join(parts)}; each time the best half of a bracket goes on"

    def _build(self) -> BasePruner:
        return HyperbandPruner(min_resource=self.first, max_resource=self.steps, reduction_factor=REDUCTION_FACTOR)

    def _meet(self, study: Study, trial: FrozenTrial, other: FrozenTrial, rung: str) -> bool:
        rule = self._rule
        assert isinstance(rule, HyperbandPruner)
        same_bracket = rule._get_bracket_id(study, trial) == rule._get_bracket_id(study, other)
        return same_bracket and rung in other.system_attrs


class Median(Pruner):
    """The median rule (Golovin et al. 2017)."""

    summary = "the median rule: what is worse than the median of the complete trials at the same step ends"

    def _plan(self) -> str:
        return (
            f"after each {self.unit} from {self.first} on, once {COMPLETE_FOR_MEDIAN} trials are complete, what is "
            f"below their median at that {self.unit} ends"
        )

    def _build(self) -> BasePruner:
        return MedianPruner(n_startup_trials=COMPLETE_FOR_MEDIAN, n_warmup_steps=self.first)

    def _reason_of(self, study: Study, trials: Sequence[FrozenTrial], number: int) -> str:
        step = max(trials[number].intermediate_values)
        complete = [trial.intermediate_values[step] for trial in trials if trial.state == TrialState.COMPLETE]
        median = statistics.median(complete)
        return f"was below {median:.4f}, the median of the {len(complete)} complete trials after this {self.unit}"


PRUNERS: dict[str, type[Pruner]] = {
    "asha": SuccessiveHalving,
    "hyperband": Hyperband,
    "median": Median,
    "none": Unpruned,
}
