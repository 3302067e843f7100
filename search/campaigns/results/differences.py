"""Which rows of a campaign's table differ on the test classes, column by column."""

import itertools
from collections.abc import Mapping, Sequence

from search.campaigns.results.types import CampaignPair
from search.report.pairs.comparable import Comparable
from search.report.pairs.pairs_of import HOW, pairs_of
from search.report.results.row import RowKey

PAIRED = f"each two rows of a column; {HOW} the pairs of one test set"

Coordinates = Mapping[RowKey, Mapping[str, str]]
"""The loss and the labels of each row that could be compared."""


def differences(
    tested: Comparable, coordinates: Coordinates, rows: Sequence[str], columns: Sequence[str]
) -> list[CampaignPair]:
    """The pairs of rows that were tested on one test set; ``rows`` and ``columns`` shape the table."""
    names = {key: " ".join(found[axis] for axis in (*rows, *columns)) for key, found in coordinates.items()}
    return [
        CampaignPair(**dict(pair), names=(names[pair.first], names[pair.second]))
        for pair in pairs_of(tested, wanted_pairs(coordinates, columns))
    ]


def wanted_pairs(coordinates: Coordinates, columns: Sequence[str]) -> list[tuple[RowKey, RowKey]]:
    """Each two rows of a column."""
    by_column: dict[tuple[str, ...], list[RowKey]] = {}
    for key, found in coordinates.items():
        by_column.setdefault(tuple(found[axis] for axis in columns), []).append(key)
    return [pair for keys in by_column.values() for pair in itertools.combinations(keys, 2)]
