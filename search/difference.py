"""Differences of configurations: over classes, what a choice rests on, the recommendation, and the table of the test.

Importing this module does not import Optuna.
"""

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from search.stages import Role
from trainables.common.errors import counted
from trainables.metrics import is_bounded

LEVEL = 0.05
"""The level of all tests."""

FEW_CLASSES = 20
"""With fewer validation classes, a choice is confirmed on halves of the training classes, or may be mostly luck."""


def confirms_on_halves(on: str, validating: int) -> bool:
    """Return True if a search with ``selection.on`` and this number of validating classes is confirmed on halves."""
    return on == "halves" or (on == "auto" and validating < FEW_CLASSES)


CLASS_POINTS = 6.0
"""The deviation, in points, of the difference of two configurations from class to class, as measured on photographs."""


def shown_points(classes: int) -> str:
    """Return the difference of two configurations that this number of classes can show: two standard errors."""
    points = 2 * CLASS_POINTS / math.sqrt(classes)
    return counted(round(points), "point") if points > 0.5 else "half a point"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of two configurations, the first minus the second.

    ``error`` is its standard error over the classes that validated; None with fewer than two, and if the objective has
    no values by class.
    """

    mean: float
    error: float | None

    @classmethod
    def by_class(cls, first: Mapping[str, float], second: Mapping[str, float]) -> "Difference | None":
        """Return the difference of the values by class; None without any."""
        pairs = [first[name] - second[name] for name in first if name in second]
        if not pairs:
            return None
        error = statistics.stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else None
        return cls(mean=statistics.fmean(pairs), error=error)

    def is_above(self, errors: float) -> bool:
        """Return True if it is above 0 by more than this number of standard errors."""
        return self.mean > errors * (self.error or 0.0)

    def side(self, objective: str) -> str:
        """Return it with its standard error, and its sign in words: ``1.2 ± 0.9 points above``."""
        where = "above" if self.mean > 0 else "below"
        if is_bounded(objective):
            error = "" if self.error is None else f" ± {100 * self.error:.1f}"
            return f"{100 * abs(self.mean):.1f}{error} points {where}"
        return f"{abs(self.mean):.4g}{'' if self.error is None else f' ± {self.error:.2g}'} {where}"


@dataclass(frozen=True, kw_only=True)
class Basis:
    """The basis of a choice: ``better_by`` standard errors of the ``objective`` above the default.

    ``validation`` and ``confirmation`` are the classes that validated, in words: "on the 4 validation classes".
    """

    objective: str
    validation: str
    confirmation: str
    better_by: float


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The model that a search recommends, from its training classes alone, with its ``basis`` in words.

    ``loss`` may be a network without training, which has no ``number`` of a chosen trial.
    """

    loss: str
    number: int | None
    basis: str


# The table of the test.


class RowKey(NamedTuple):
    """The name of a row in a comparison."""

    search: str
    loss: str
    role: Role


def shown_metrics(objective: str, computed: Collection[str]) -> list[str]:
    """Return the test metrics that a comparison shows, among those that were ``computed``."""
    return [name for name in dict.fromkeys((objective, "recall_at_1")) if name in computed]


def best_baseline(classes: Mapping[str, Mapping[str, float]]) -> str:
    """Return the network without training that is best in the mean of its values by class; empty without one."""
    return max(classes, key=lambda name: statistics.fmean(classes[name].values() or [0.0]), default="")


def tested_pairs(rows: Mapping[RowKey, int | None], baselines: Mapping[str, RowKey]) -> Iterator[tuple[RowKey, RowKey]]:
    """Yield each tuned loss against its default, the network of its search in ``baselines``, and other tuned losses.

    ``rows`` has the number of each row's trial: a tuned row with trial 0 is its default.
    """
    tuned = [key for key in rows if key.role is Role.TUNED]
    for key in tuned:
        if rows[key] != 0:
            yield key, key._replace(role=Role.DEFAULT)
    for key in tuned:
        if key.search in baselines:
            yield key, baselines[key.search]
    yield from itertools.combinations(tuned, 2)


@dataclass(frozen=True, kw_only=True)
class Family:
    """The metrics, rows and pairs of a test table, whose differences are tested together; frozen with the choice.

    They are sorted, so that equal tables are equal as JSON. ``within`` is the margin of equivalence, None without one.
    """

    metrics: tuple[str, ...]
    rows: tuple[RowKey, ...]
    pairs: tuple[tuple[RowKey, ...], ...]
    within: float | None = None

    @classmethod
    def of(
        cls, metrics: Iterable[str], rows: Iterable[RowKey], pairs: Iterable[Iterable[RowKey]], within: float | None
    ) -> "Family":
        """Return the table with these parts, in any order."""
        unordered = {tuple(sorted(pair)) for pair in pairs}
        return cls(
            metrics=tuple(sorted({*metrics})),
            rows=tuple(sorted({*rows})),
            pairs=tuple(sorted(unordered)),
            within=within,
        )

    @property
    def baselines(self) -> dict[str, RowKey]:
        """The network without training with which each search's losses are compared."""
        return {key.search: key for pair in self.pairs for key in pair if key.role is Role.BASELINE}
