"""Anytime curves of a campaign that varies how it searches."""

from collections.abc import Mapping, Sequence
from typing import Any

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS
from search.report.anytime import compared_curves

HOW = ("sampler", "pruner", "trials", "epochs")
"""The keys of a search file's section ``search`` that say how it searches."""


def search_axes(campaign: Campaign) -> list[str]:
    """The axes along which, all other labels alike, the searches go different ways."""
    return [axis for place, axis in enumerate(campaign.config.vary) if _differs(campaign, place)]


def _differs(campaign: Campaign, place: int) -> bool:
    found: dict[tuple[str, ...], set[tuple[Any, ...]]] = {}
    for member in campaign.members:
        others = (*member.labels[:place], *member.labels[place + 1 :])
        found.setdefault(others, set()).add(tuple(getattr(member.config.search, key) for key in HOW))
    return any(len(ways) > 1 for ways in found.values())


def campaign_curves(campaign: Campaign, summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each loss the curve of each way to search, the mean over the other axis (seeds, say), if there is one.

    Nothing where all searches go the same way, or where their values are those of different objectives.
    """
    axes = search_axes(campaign)
    if not axes or len({member.config.objective for member in campaign.members}) > 1:
        return []
    ways: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for member, summary in zip(campaign.members, summaries, strict=True):
        labels = dict(zip(campaign.config.vary, member.labels, strict=True))
        for loss, entry in summary["losses"].items():
            ways.setdefault(loss, {}).setdefault(" ".join(labels[axis] for axis in axes), []).append(entry)
    return [
        {LOSS: loss, "way": way, **curve}
        for loss, entries in ways.items()
        for way, curve in compared_curves(entries).items()
    ]
