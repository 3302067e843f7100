"""The objectives of a search, and the constraints that a chosen configuration must meet."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial

from search.trials import by_fold, epochs_of
from trainables.errors import InvalidInput
from trainables.metrics.table import metric_name

CHOICE_IN_FRONT = "the one nearest to the best values of all, each in units of its range over the front"
"""The rule that chooses one of a Pareto front, in words."""

Measured = Mapping[str, float]
"""Values by the name of a metric."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A metric that is maximised, or minimised if ``minimised``."""

    metric: str
    minimised: bool = False

    @classmethod
    def parse(cls, text: str) -> "Objective":
        """Return the objective that a search file writes as ``metric`` or ``-metric``."""
        return cls(metric=metric_name(text.removeprefix("-")), minimised=text.startswith("-"))

    def value(self, measured: Measured) -> float:
        return -measured[self.metric] if self.minimised else measured[self.metric]


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
    """What is looked for.

    Attributes:
        objectives: the first one is a metric of the validation. It ranks epochs and prunes trials.
        constraints: what a chosen configuration must meet, at the epoch whose model is kept.
    """

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, search: Mapping[str, Any]) -> "Goal":
        """Return the goal that the section ``search`` of a search file describes."""
        return cls(
            objectives=tuple(map(Objective.parse, search["objectives"] or (search["objective"],))),
            constraints=tuple(Constraint.parse(metric, text) for metric, text in search["constraints"].items()),
        )

    @property
    def is_plain(self) -> bool:
        return len(self.objectives) == 1 and not self.constraints

    @property
    def metrics(self) -> tuple[str, ...]:
        named = [entry.metric for entry in self.objectives] + [entry.metric for entry in self.constraints]
        return tuple(dict.fromkeys(named))

    def measured(self, trial: FrozenTrial) -> Measured:
        """Return the metrics at the best epoch of ``trial``, averaged over its folds; empty without a validation."""
        best = [self._best(fold) for fold in by_fold(epochs_of(trial))]
        if not best or not all(best):
            return {}
        return {metric: statistics.fmean(entry[metric] for entry in best) for metric in self.metrics}

    def _best(self, fold: Sequence[Mapping[str, object]]) -> Measured:
        first = self.objectives[0].metric
        metrics: list[Measured] = [record["metrics"] for record in fold]  # type: ignore[misc]
        return max(metrics, key=lambda entry: entry.get(first, -math.inf)) if metrics else {}

    def mean(self, trials: Sequence[FrozenTrial]) -> Measured:
        """Return the mean of the metrics of several ``trials``; empty without a validation."""
        found = [measured for trial in trials if (measured := self.measured(trial))]
        return {metric: statistics.fmean(entry[metric] for entry in found) for metric in self.metrics} if found else {}

    def values(self, measured: Measured) -> tuple[float, ...]:
        """Return the values to maximise, one for each objective."""
        return tuple(objective.value(measured) for objective in self.objectives)

    def unmet(self, measured: Measured) -> list[Constraint]:
        return [constraint for constraint in self.constraints if constraint.excess(measured) > 0]

    def ranked(self, candidates: Sequence[Measured]) -> list[int]:
        """Return the positions of ``candidates``, the preferred ones first.

        Those that meet all constraints come first. Among equals in that, the Pareto front comes first, then the front
        of the others, and so on (Goldberg 1989); within a front the rule of the choice decides, then the position.
        """
        left, order = list(range(len(candidates))), []
        while left:
            least = min(len(self.unmet(candidates[place])) for place in left)
            equal = [place for place in left if len(self.unmet(candidates[place])) == least]
            points = {place: self.values(candidates[place]) for place in equal}
            front = _front(points)
            order += sorted(front, key=lambda place: (self._distance(points[place], [points[p] for p in front]), place))
            left = [place for place in left if place not in front]
        return order

    def front(self, candidates: Sequence[Measured]) -> list[int]:
        """Return the positions of the Pareto front of the ``candidates`` that meet all constraints, in their order."""
        met = ((place, measured) for place, measured in enumerate(candidates) if not self.unmet(measured))
        return _front({place: self.values(measured) for place, measured in met})

    def _distance(self, point: Sequence[float], front: Sequence[Sequence[float]]) -> float:
        """Return the distance of ``point`` to the best values of the ``front``, each in units of its range over it."""
        total = 0.0
        for own, *values in zip(point, *front, strict=True):
            if width := max(values) - min(values):
                total += ((max(values) - own) / width) ** 2
        return total

    @property
    def rule(self) -> str:
        """The rule of the choice in words; empty if one metric decides alone."""
        parts = []
        if self.constraints:
            met = " and ".join(constraint.text for constraint in self.constraints)
            parts.append(f"only configurations with {met} are chosen")
        if len(self.objectives) > 1:
            names = ", ".join(f"{entry.metric}{' (lower)' if entry.minimised else ''}" for entry in self.objectives)
            parts.append(f"chosen of the Pareto front of {names}: {CHOICE_IN_FRONT}")
        return "; ".join(parts)


def _front(points: Mapping[int, Sequence[float]]) -> list[int]:
    return [place for place, point in points.items() if not any(dominates(other, point) for other in points.values())]


def dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return True if ``first`` is nowhere below ``second`` and somewhere above it."""
    return all(a >= b for a, b in zip(first, second, strict=True)) and tuple(first) != tuple(second)
