"""What a campaign's rows come to beside each other on the test classes, one test set after the other."""

from collections.abc import Sequence

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS, VALIDATION
from search.campaigns.results.cells import METRIC, ROLE, all_coordinates
from search.campaigns.results.curves import search_axes
from search.campaigns.results.differences import Coordinates, differences
from search.campaigns.results.table import columns_of
from search.campaigns.results.trends import trends
from search.campaigns.results.types import CampaignPair, Trend
from search.plan.search import Search
from search.report.comparison import rows_of
from search.report.pairs.comparable import comparable_rows
from search.report.results.row import RowKey
from search.report.results.summary import Summary
from search.report.seal.image_sets import image_set_of
from search.selection.role import Role


def comparisons(
    campaign: Campaign, results: Sequence[tuple[Search, Summary]]
) -> tuple[list[CampaignPair], list[Trend], list[str]]:
    """The pairs and the trends of rows that were tested, and sentences on what is left out.

    Where the table has both configurations, it is the tuned ones that are compared.
    """
    config = campaign.config
    coordinates, columns = paired_rows(campaign), paired_columns(campaign)
    numbers = [axis for axis in config.vary if axis not in search_axes(campaign)]
    pairs: list[CampaignPair] = []
    found: list[Trend] = []
    left_out: list[str] = []
    image_sets = [image_set_of(search.plan.folder) for search, _ in results]
    for image_set in dict.fromkeys(image_sets):
        sharing = [result for result, its in zip(results, image_sets, strict=True) if its == image_set]
        folders = [search.plan.folder for search, _ in sharing]
        rows = [row for _, summary in sharing for row in rows_of(summary)]
        tested, missing = comparable_rows(folders, rows, tested_metrics(campaign), coordinates)
        left_out += missing
        if tested:
            pairs += differences(tested, coordinates, config.table.rows, columns)
            found += trends(tested, coordinates, numbers)
    return pairs, found, left_out


def tested_metrics(campaign: Campaign) -> list[str]:
    """The metrics of the table that the test measures."""
    return [name for name in campaign.config.table.metrics if name != VALIDATION]


def paired_columns(campaign: Campaign) -> list[str]:
    """What tells the columns apart within which rows are paired."""
    return [key for key in columns_of(campaign, all_coordinates(campaign)) if key not in (ROLE, METRIC)]


def paired_rows(campaign: Campaign) -> Coordinates:
    """The rows that are paired: the tuned ones where the table has both configurations."""
    return rows_of_role(campaign, Role.TUNED if Role.TUNED in campaign.config.table.roles else Role.DEFAULT)


def rows_of_role(campaign: Campaign, role: Role) -> Coordinates:
    """The rows of the configurations with this role."""
    return {
        RowKey(search=member.config.name, loss=loss, role=role): {
            LOSS: loss,
            **dict(zip(campaign.config.vary, member.labels, strict=True)),
        }
        for member in campaign.members
        for loss in member.config.loss_names
    }
