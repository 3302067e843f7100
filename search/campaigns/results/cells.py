"""What a campaign measured: one number a search, loss, role and metric, with the paper's beside it."""

from collections.abc import Iterator, Sequence

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS, VALIDATION
from search.campaigns.results.types import Cell
from search.report.results.loss_summary import LossSummary
from search.report.results.seed_statistics import SeedStatistics
from search.report.results.summary import Summary
from search.selection.role import Role
from trainables.metrics.table import DISTANCES, split_subset

ROLE, METRIC = "configuration", "metric"
"""The coordinates of a cell beside its loss and its labels."""


def unit(metric: str) -> float:
    """What a table multiplies a metric by: papers print per cent, and distances as they are."""
    return 1.0 if split_subset(metric)[0] in DISTANCES else 100.0


def digits(metric: str) -> int:
    """How many digits after the point a table prints of ``metric``, in that unit."""
    return 2 if unit(metric) > 1 else 3


def measured(campaign: Campaign, summaries: Sequence[Summary]) -> list[Cell]:
    """All cells, from the summaries of the campaign's searches."""
    return [
        _cell(campaign, member.labels, loss, role, metric, summary.losses[loss])
        for member, summary in zip(campaign.members, summaries, strict=True)
        for loss in member.config.loss_names
        for role in campaign.config.table.roles
        for metric in campaign.config.table.metrics
    ]


def all_coordinates(campaign: Campaign) -> list[dict[str, str]]:
    """The coordinates of all cells, which the campaign file alone says."""
    return [
        _coordinates(campaign, member.labels, loss, role, metric)
        for member in campaign.members
        for loss in member.config.loss_names
        for role in campaign.config.table.roles
        for metric in campaign.config.table.metrics
    ]


def _coordinates(campaign: Campaign, labels: Sequence[str], loss: str, role: Role, metric: str) -> dict[str, str]:
    return {
        LOSS: loss,
        **dict(zip(campaign.config.vary, labels, strict=True)),
        ROLE: role.value,
        METRIC: metric,
    }


def _cell(campaign: Campaign, labels: Sequence[str], loss: str, role: Role, metric: str, entry: LossSummary) -> Cell:
    found = _statistics(entry, role, metric)
    return Cell(
        coordinates=_coordinates(campaign, labels, loss, role, metric),
        values=found.values if found else (),
        seeds=found.seeds if found else 0,
        mean=found.mean if found else None,
        std=found.std if found else None,
        published=next(_published(campaign, " ".join((loss, *labels)), role, metric), None),
    )


def _statistics(entry: LossSummary, role: Role, metric: str) -> SeedStatistics | None:
    found = entry.of_role(role)
    return found.confirmed if metric == VALIDATION else (found.test or {}).get(metric)


def _published(campaign: Campaign, key: str, role: Role, metric: str) -> Iterator[float]:
    for published in campaign.config.published:
        if published.role is role and metric in published.metrics and key in published.cells:
            number = published.cells[key][published.metrics.index(metric)]
            yield round(number / unit(metric), 6)
