"""What a campaign's rows come to beside each other on the test classes, one test set after the other."""

from collections.abc import Sequence

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS, VALIDATION
from search.campaigns.results.cells import METRIC, ROLE
from search.campaigns.results.curves import search_axes
from search.campaigns.results.differences import Coordinates, differences
from search.campaigns.results.table import columns_of
from search.campaigns.results.trends import trends
from search.campaigns.results.types import CampaignPair, Cell, Trend
from search.plan.search import Search
from search.report.comparison import rows_of
from search.report.pairs.comparable import comparable_rows
from search.report.results.row import RowKey
from search.report.results.summary import Summary
from search.selection.role import Role


def comparisons(
    campaign: Campaign, cells: Sequence[Cell], results: Sequence[tuple[Search, Summary]]
) -> tuple[list[CampaignPair], list[Trend], list[str]]:
    """The pairs and the trends of rows that were tested, and sentences on what is left out.

    Where the table has both configurations, it is the tuned ones that are compared.
    """
    config = campaign.config
    role = Role.TUNED if Role.TUNED in config.table.roles else Role.DEFAULT
    metrics = [name for name in config.table.metrics if name != VALIDATION]
    columns = [key for key in columns_of(campaign, cells) if key not in (ROLE, METRIC)]
    numbers = [axis for axis in config.vary if axis not in search_axes(campaign)]
    coordinates = _coordinates(campaign, role)
    pairs: list[CampaignPair] = []
    found: list[Trend] = []
    left_out: list[str] = []
    for digest in dict.fromkeys(search.plan.split.test_digest for search, _ in results):
        sharing = [result for result in results if result[0].plan.split.test_digest == digest]
        folders = [search.plan.folder for search, _ in sharing]
        rows = [row for _, summary in sharing for row in rows_of(summary)]
        tested, missing = comparable_rows(folders, rows, metrics, coordinates)
        left_out += missing
        if tested:
            pairs += differences(tested, coordinates, config.table.rows, columns)
            found += trends(tested, coordinates, numbers)
    return pairs, found, left_out


def _coordinates(campaign: Campaign, role: Role) -> Coordinates:
    return {
        RowKey(search=member.config.name, loss=loss, role=role): {
            LOSS: loss,
            **dict(zip(campaign.config.vary, member.labels, strict=True)),
        }
        for member in campaign.members
        for loss in member.config.loss_names
    }
