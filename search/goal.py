"""The objective of a search, and the constraints that a chosen configuration must meet."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial

from search.trials import by_fold, epochs_of
from trainables.common.errors import InvalidInput
from trainables.metrics import metric_name

Measured = Mapping[str, float]
"""Values by the name of a metric."""


BOUND = r"\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
"""A bound of a metric as a search file writes it: a relation and a number."""


def bound_text(text: str) -> str:
    """Return ``text``; raise unless it is a :data:`BOUND`."""
    if not re.fullmatch(BOUND, text):
        raise InvalidInput(f'it must be <, <=, > or >= and a number, such as "< 5"; it is {text!r}.')
    return text


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """A bound of a metric, such as ``< 5``."""

    metric: str
    relation: str
    bound: float

    @classmethod
    def parse(cls, metric: str, text: str) -> "Constraint":
        """Return the constraint that a search file writes as ``metric: "< 5"``."""
        relation, bound = re.fullmatch(BOUND, bound_text(text)).groups()  # type: ignore[union-attr]
        return cls(metric=metric_name(metric), relation=relation, bound=float(bound))

    @property
    def text(self) -> str:
        return f"{self.metric} {self.relation} {self.bound:g}"

    def excess(self, measured: Measured) -> float:
        """Return by how much the value is beyond the bound: above 0 if the constraint is not met, as in Optuna."""
        beyond = measured[self.metric] - self.bound
        if ">" in self.relation:
            beyond = -beyond
        # A strict bound itself is not allowed; the smallest number above 0 says so.
        return math.nextafter(0, 1) if beyond == 0 and "=" not in self.relation else beyond


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The objective of a search, which ranks epochs and trials, and bounds at the epoch whose model is kept."""

    objective: str
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, search: Mapping[str, Any]) -> "Goal":
        """Return the goal that the section ``search`` of a search file describes."""
        return cls(
            objective=metric_name(search["objective"]),
            constraints=tuple(Constraint.parse(metric, text) for metric, text in search["constraints"].items()),
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.objective, *(constraint.metric for constraint in self.constraints))))

    def measured(self, trial: FrozenTrial) -> Measured:
        """Return the metrics at the best epoch of ``trial``, averaged over its folds; empty without a validation."""
        folds: list[list[Measured]] = [[record["metrics"] for record in fold] for fold in by_fold(epochs_of(trial))]  # type: ignore[misc]
        best = [max(fold, key=lambda entry: entry.get(self.objective, -math.inf)) for fold in folds]
        if not best or not all(best):
            return {}
        return {metric: statistics.fmean(entry[metric] for entry in best) for metric in self.metrics}

    def mean(self, trials: Sequence[FrozenTrial]) -> Measured:
        """Return the mean of the metrics of several ``trials``; empty without a validation."""
        found = [measured for trial in trials if (measured := self.measured(trial))]
        return {metric: statistics.fmean(entry[metric] for entry in found) for metric in self.metrics} if found else {}

    def unmet(self, measured: Measured) -> list[Constraint]:
        return [constraint for constraint in self.constraints if constraint.excess(measured) > 0]

    def ranked(self, candidates: Sequence[Measured]) -> list[int]:
        """Return the positions of ``candidates``: those that meet most constraints first, then by the objective."""
        places = range(len(candidates))
        return sorted(places, key=lambda at: (len(self.unmet(candidates[at])), -candidates[at][self.objective]))

    @property
    def rule(self) -> str:
        """The constraints in words; empty without any."""
        met = " and ".join(constraint.text for constraint in self.constraints)
        return f"only configurations with {met} are chosen" if met else ""
