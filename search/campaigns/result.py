"""``campaign.json``: what a campaign came to."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import yaml

from search.campaigns.campaign import Campaign
from search.campaigns.cells import METRIC, ROLE, Cell, measured
from search.campaigns.config import LOSS, VALIDATION
from search.openings import Ledger
from search.plan import CONFIRM, FINAL, SEARCH, study_name
from search.search import Search
from search.statistics.tournament import tournament
from search.study import epochs_of, stored_trials
from trainables.files import write_json, write_whole


def write_result(campaign: Campaign, searches: Sequence[Search]) -> dict[str, Any]:
    """Write ``campaign.yaml`` and ``campaign.json`` into the campaign's folder, and return the latter."""
    folder = searches[0].plan.folder.runs / campaign.name
    folder.mkdir(exist_ok=True)
    text = yaml.safe_dump(campaign.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    write_whole(folder / "campaign.yaml", lambda file: file.write(text.encode()))
    result = campaign_result(campaign, searches)
    write_json(folder / "campaign.json", result)
    return result


def campaign_result(campaign: Campaign, searches: Sequence[Search]) -> dict[str, Any]:
    """The result, derived from the searches' records."""
    cells = measured(campaign, [search.summary() for search in searches])
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
        "tournaments": {
            role: standings for role in campaign.config.table.roles if (standings := _tournament(campaign, cells, role))
        },
        "epochs": {stage: _epochs(searches, stage) for stage in (SEARCH, CONFIRM, FINAL)},
        "openings": {digest: ledger.sentence(digest) for digest in test_sets},
    }


def _epochs(searches: Sequence[Search], stage: str) -> int:
    return sum(
        len(epochs_of(trial))
        for search in searches
        for loss in search.config.losses
        for trial in stored_trials(search.storage, study_name(search.config.name, loss, stage))
    )


def _tournament(campaign: Campaign, cells: Sequence[Cell], role: str) -> list[dict[str, Any]]:
    """The losses ranked in every search by the table's first test metric; none where they are not the same in all."""
    metrics = [name for name in campaign.config.table.metrics if name != VALIDATION]
    table: dict[str, dict[str, float]] = {}
    for cell in cells:
        if metrics and (cell.place[ROLE], cell.place[METRIC]) == (role, metrics[0]) and cell.mean is not None:
            setting = " ".join(cell.place[axis] for axis in campaign.config.vary)
            table.setdefault(setting, {})[cell.place[LOSS]] = cell.mean
    complete = len(campaign.losses) > 1 and all(scores.keys() == {*campaign.losses} for scores in table.values())
    if not complete or len(table) < max(2, len(campaign.members)):
        return []
    return [asdict(standing) for standing in tournament(table)]
