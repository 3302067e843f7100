"""What a campaign measured: one number a search, loss, role and metric, with the paper's beside it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS, VALIDATION, Role
from trainables.metrics.table import DISTANCES

ROLE, METRIC = "configuration", "metric"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number: ``place`` says of what (loss, a label of each axis, configuration, metric).

    ``values`` are the models', in our unit (0 to 1), of so many ``seeds``; empty where nothing finished. ``std`` is
    their sample deviation.
    ``published`` is the paper's number in the same unit.
    """

    place: Mapping[str, str]
    values: Sequence[float]
    seeds: int
    mean: float | None
    std: float | None
    published: float | None


def unit(metric: str) -> float:
    """What a table multiplies a metric by: papers print per cent, and distances as they are."""
    return 1.0 if metric in DISTANCES else 100.0


def measured(campaign: Campaign, summaries: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """All cells, from the summaries of the campaign's searches."""
    return [
        _cell(campaign, member.labels, loss, role, metric, summary["losses"][loss])
        for member, summary in zip(campaign.members, summaries, strict=True)
        for loss in member.config.loss_names
        for role in campaign.config.table.roles
        for metric in campaign.config.table.metrics
    ]


def _cell(
    campaign: Campaign, labels: Sequence[str], loss: str, role: Role, metric: str, entry: Mapping[str, Any]
) -> Cell:
    of_role = entry["default"] if role == "default" else entry
    found = of_role["confirmed"] if metric == VALIDATION else (of_role["test"] or {}).get(metric)
    found = found or {"values": [], "seeds": 0, "mean": None, "std": None}
    return Cell(
        place={LOSS: loss, **dict(zip(campaign.config.vary, labels, strict=True)), ROLE: role, METRIC: metric},
        values=found["values"],
        seeds=found["seeds"],
        mean=found["mean"],
        std=found["std"],
        published=next(_published(campaign, " ".join((loss, *labels)), role, metric), None),
    )


def _published(campaign: Campaign, key: str, role: Role, metric: str) -> Iterator[float]:
    for published in campaign.config.published:
        if published.role == role and metric in published.metrics and key in published.cells:
            number = published.cells[key][published.metrics.index(metric)]
            yield round(number / unit(metric), 6)
