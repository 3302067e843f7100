"""Which rows of a campaign's table differ on the test classes, column by column."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS, VALIDATION
from search.campaigns.results.cells import METRIC, ROLE, Cell
from search.campaigns.results.table import columns_of
from search.plan.search import Search
from search.report.comparison import rows_of
from search.report.pairs import DEFAULT, TUNED, Row, pairs_of

PAIRED = (
    "each two rows of a column; paired bootstrap over test classes and final seeds and paired t over the seeds, the "
    "larger p and the wider interval of the two, corrected (Holm) over the pairs of one test set"
)


def differences(
    campaign: Campaign, cells: Sequence[Cell], searches: Sequence[Search]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The pairs, as JSON, each with the ``names`` of its two rows; and sentences on what is left out.

    Where the table has both configurations, it is the chosen ones that are compared.
    """
    role = TUNED if "chosen" in campaign.config.table.roles else DEFAULT
    metrics = [name for name in campaign.config.table.metrics if name != VALIDATION]
    columns = [key for key in columns_of(campaign, cells) if key not in (ROLE, METRIC)]
    places = _places(campaign, role)
    wanted = list(_wanted(places, columns))
    pairs: list[dict[str, Any]] = []
    left_out: list[str] = []
    for digest in dict.fromkeys(search.plan.split.test_digest for search in searches):
        sharing = [search for search in searches if search.plan.split.test_digest == digest]
        rows = [row for search in sharing for row in rows_of(search.summary())]
        found, missing = pairs_of([search.plan.folder for search in sharing], rows, metrics, wanted)
        for pair in found:
            ends = [places[tuple(pair[end])] for end in ("first", "second")]
            told = [" ".join(place[key] for key in (*campaign.config.table.rows, *columns)) for place in ends]
            pairs.append({**pair, "names": told})
        left_out += missing
    return pairs, left_out


def _places(campaign: Campaign, role: str) -> dict[Row, dict[str, str]]:
    return {
        (member.config.name, loss, role): {LOSS: loss, **dict(zip(campaign.config.vary, member.labels, strict=True))}
        for member in campaign.members
        for loss in member.config.loss_names
    }


def _wanted(places: Mapping[Row, Mapping[str, str]], columns: Sequence[str]) -> Iterator[tuple[Row, Row]]:
    by_column: dict[tuple[str, ...], list[Row]] = {}
    for row, place in places.items():
        by_column.setdefault(tuple(place[key] for key in columns), []).append(row)
    for rows in by_column.values():
        yield from itertools.combinations(rows, 2)
