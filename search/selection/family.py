"""Which table the test makes: its metrics, its rows, and the pairs whose differences are tested together."""

from dataclasses import dataclass
from typing import Any

RowName = tuple[str, str, str]
"""A row: its search, its loss and its role."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A table's test metrics, rows and pairs, without order. It is frozen with the choice, before there are numbers."""

    metrics: frozenset[str]
    rows: frozenset[RowName]
    pairs: frozenset[frozenset[RowName]]

    def to_json(self) -> dict[str, Any]:
        """The family, for ``selection.json``; equal ones are written alike."""
        return {
            "metrics": sorted(self.metrics),
            "rows": sorted(map(list, self.rows)),
            "pairs": sorted(sorted(map(list, pair)) for pair in self.pairs),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Family":
        """The family that :meth:`to_json` wrote."""
        return cls(
            metrics=frozenset(content["metrics"]),
            rows=frozenset(tuple(row) for row in content["rows"]),
            pairs=frozenset(frozenset(tuple(row) for row in pair) for pair in content["pairs"]),
        )
