"""Anytime curves of a campaign that varies how it searches."""

from collections.abc import Sequence

from search.campaigns.campaign import Campaign
from search.campaigns.results.types import CampaignCurve
from search.config.search_config import SearchSection
from search.report.anytime import compared_curves
from search.report.results.loss_summary import LossSummary
from search.report.results.summary import Summary


def search_axes(campaign: Campaign) -> list[str]:
    """The axes along which, all other labels alike, the searches go different ways."""
    return [axis for position, axis in enumerate(campaign.config.vary) if _differs(campaign, position)]


def _differs(campaign: Campaign, position: int) -> bool:
    found: dict[tuple[str, ...], set[tuple[str | float | None, ...]]] = {}
    for member in campaign.members:
        others = (*member.labels[:position], *member.labels[position + 1 :])
        found.setdefault(others, set()).add(_way(member.config.search))
    return any(len(ways) > 1 for ways in found.values())


def _way(search: SearchSection) -> tuple[str | float | None, ...]:
    """What says how a search searches."""
    return search.sampler, search.prior, search.pruner, search.trials, search.epochs


def campaign_curves(campaign: Campaign, summaries: Sequence[Summary]) -> list[CampaignCurve]:
    """For each loss the curve of each way to search, the mean over the other axis (seeds, say), if there is one.

    Nothing where all searches go the same way, or where their values are those of different objectives.
    """
    axes = search_axes(campaign)
    if not axes or len({member.config.objective for member in campaign.members}) > 1:
        return []
    ways: dict[str, dict[str, list[LossSummary]]] = {}
    for member, summary in zip(campaign.members, summaries, strict=True):
        labels = dict(zip(campaign.config.vary, member.labels, strict=True))
        for loss, entry in summary.losses.items():
            ways.setdefault(loss, {}).setdefault(" ".join(labels[axis] for axis in axes), []).append(entry)
    return [
        CampaignCurve(loss=loss, way=way, points=curve.points, against=curve.against, cost_ratio=curve.cost_ratio)
        for loss, entries in ways.items()
        for way, curve in compared_curves(loss, entries).items()
    ]
