"""A row of the comparison: one configuration of one loss in one search."""

from collections.abc import Mapping
from typing import NamedTuple

from search.report.results.loss_summary import Confirmed
from search.report.results.result import Result
from search.report.results.seed_statistics import SeedInterval, SeedStatistics
from search.selection.role import Role
from spaces.value import Value


class RowKey(NamedTuple):
    """What tells the rows of a comparison apart."""

    search: str
    loss: str
    role: Role


class Row(Result):
    """One configuration, from the search to the test classes.

    ``number`` is its trial and ``params`` its hyperparameters; both are None where no trial finished. The other
    fields are those of :class:`~search.report.results.loss_summary.DefaultSummary`, ``search_value`` its ``value``.
    """

    search: str
    loss: str
    role: Role
    number: int | None
    params: Mapping[str, Value] | None
    search_value: float | None
    confirmed: Confirmed | None
    final: SeedStatistics | None
    test: Mapping[str, SeedInterval] | None
    test_small: SeedStatistics | None

    @property
    def key(self) -> RowKey:
        """What the row is called."""
        return RowKey(search=self.search, loss=self.loss, role=self.role)
