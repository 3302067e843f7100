"""What a campaign came to, as ``campaign.json`` holds it."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from search.campaigns.campaign import Campaign
from search.campaigns.results.cells import measured
from search.campaigns.results.curves import campaign_curves
from search.campaigns.results.differences import differences
from search.campaigns.results.optimism import optimism
from search.campaigns.results.standings import standings
from search.plan.search import Search
from search.selection.openings import Ledger
from search.study.names import Stage, study_name
from search.study.records import epochs_of
from search.study.storage import stored_trials


def campaign_result(campaign: Campaign, searches: Sequence[Search]) -> dict[str, Any]:
    """The result, derived from the searches' records."""
    summaries = [search.summary() for search in searches]
    cells = measured(campaign, summaries)
    pairs, left_out = differences(campaign, cells, searches)
    ledger = Ledger(searches[0].plan.folder.openings)
    test_sets = dict.fromkeys(search.plan.split.test_digest for search in searches)
    return {
        "name": campaign.name,
        "study": campaign.config.study,
        "searches": {
            search.config.name: dict(zip(campaign.config.vary, member.labels, strict=True))
            for search, member in zip(searches, campaign.members, strict=True)
        },
        "cells": [asdict(cell) for cell in cells],
        "chosen": {
            summary["name"]: {
                loss: entry["confirmed"]["params"] for loss, entry in summary["losses"].items() if entry["confirmed"]
            }
            for summary in summaries
        },
        "tournaments": {
            role: [asdict(standing) for standing in found]
            for role in campaign.config.table.roles
            if (found := standings(campaign, cells, role))
        },
        "optimism": optimism(campaign, summaries),
        "pairs": pairs,
        "left_out": left_out,
        "anytime": campaign_curves(campaign, summaries),
        "epochs": {stage: _epochs(searches, stage) for stage in (Stage.SEARCH, Stage.SELECT, Stage.TEST)},
        "openings": {digest: ledger.sentence(digest) for digest in test_sets},
    }


def _epochs(searches: Sequence[Search], stage: str) -> int:
    return sum(
        len(epochs_of(trial))
        for search in searches
        for loss in search.config.loss_names
        for trial in stored_trials(search.storage, study_name(search.config.name, loss, stage))
    )
