"""Which rows of a campaign's table differ on the test classes, column by column."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS, VALIDATION
from search.campaigns.results.cells import METRIC, ROLE
from search.campaigns.results.table import columns_of
from search.campaigns.results.types import CampaignPair, Cell
from search.plan.search import Search
from search.report.comparison import rows_of
from search.report.pairs.pairs_of import HOW, pairs_of
from search.report.pairs.tested import tested_rows
from search.report.results.row import RowKey
from search.report.results.summary import Summary
from search.selection.role import Role

PAIRED = f"each two rows of a column; {HOW} the pairs of one test set"


def differences(
    campaign: Campaign, cells: Sequence[Cell], results: Sequence[tuple[Search, Summary]]
) -> tuple[list[CampaignPair], list[str]]:
    """The pairs of rows that were tested, and sentences on what is left out.

    Where the table has both configurations, it is the tuned ones that are compared.
    """
    role = Role.TUNED if Role.TUNED in campaign.config.table.roles else Role.DEFAULT
    metrics = [name for name in campaign.config.table.metrics if name != VALIDATION]
    columns = [key for key in columns_of(campaign, cells) if key not in (ROLE, METRIC)]
    coordinates = _coordinates(campaign, role)
    names = {
        row: " ".join(found[key] for key in (*campaign.config.table.rows, *columns))
        for row, found in coordinates.items()
    }
    wanted = list(_wanted(coordinates, columns))
    pairs: list[CampaignPair] = []
    left_out: list[str] = []
    for digest in dict.fromkeys(search.plan.split.test_digest for search, _ in results):
        sharing = [result for result in results if result[0].plan.split.test_digest == digest]
        folders = [search.plan.folder for search, _ in sharing]
        rows = [row for _, summary in sharing for row in rows_of(summary)]
        tested, missing = tested_rows(folders, rows, metrics, names)
        left_out += missing
        for pair in pairs_of(tested, wanted) if tested else ():
            pairs.append(CampaignPair(**dict(pair), names=(names[pair.first], names[pair.second])))
    return pairs, left_out


def _coordinates(campaign: Campaign, role: Role) -> dict[RowKey, dict[str, str]]:
    """The loss and the labels of each row that could be compared."""
    return {
        RowKey(search=member.config.name, loss=loss, role=role): {
            LOSS: loss,
            **dict(zip(campaign.config.vary, member.labels, strict=True)),
        }
        for member in campaign.members
        for loss in member.config.loss_names
    }


def _wanted(coordinates: Mapping[RowKey, Mapping[str, str]], columns: Sequence[str]) -> Iterator[tuple[RowKey, RowKey]]:
    by_column: dict[tuple[str, ...], list[RowKey]] = {}
    for row, found in coordinates.items():
        by_column.setdefault(tuple(found[key] for key in columns), []).append(row)
    for rows in by_column.values():
        yield from itertools.combinations(rows, 2)
