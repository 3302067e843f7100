"""The tournament of a campaign's losses."""

from collections.abc import Callable, Sequence

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS, VALIDATION
from search.campaigns.results.cells import METRIC, ROLE
from search.campaigns.results.types import Cell
from search.report.statistics.tournament import Tournament, tournament
from search.selection.role import Role


def measured_mean(cell: Cell) -> float | None:
    """Our number in a cell."""
    return cell.mean


def published_number(cell: Cell) -> float | None:
    """The paper's number in a cell."""
    return cell.published


def standings(
    campaign: Campaign,
    cells: Sequence[Cell],
    role: Role,
    number_in: Callable[[Cell], float | None] = measured_mean,
) -> Tournament | None:
    """The losses that all searches share, ranked in each by the table's first test metric.

    None where there is one search or one loss, or where a number is missing.
    """
    metric = next((name for name in campaign.config.table.metrics if name != VALIDATION), None)
    means = {
        (tuple(cell.coordinates[axis] for axis in campaign.config.vary), cell.coordinates[LOSS]): number
        for cell in cells
        if (cell.coordinates[ROLE], cell.coordinates[METRIC]) == (role, metric)
        and (number := number_in(cell)) is not None
    }
    settings = [member.labels for member in campaign.members]
    first, *others = [member.config.loss_names for member in campaign.members]
    losses = [loss for loss in first if all(loss in more for more in others)]
    if not others or len(losses) < 2 or any((labels, loss) not in means for labels in settings for loss in losses):
        return None
    return tournament({" ".join(labels): {loss: means[labels, loss] for loss in losses} for labels in settings})
