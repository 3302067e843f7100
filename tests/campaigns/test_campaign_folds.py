"""The folds of a cross-validation in a campaign's result, against what the search itself kept of each model."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from support.finished_search import campaign_here

from search.campaigns.cells import CampaignResult
from search.campaigns.report import study
from search.campaigns.tables import campaign_tables
from search.config.campaign import Campaign

FOLDS, SEEDS = 3, 2
WRITTEN: dict[str, Any] = {
    "name": "dealt",
    "study": "one part that validates, or three folds",
    "base": {
        "dataset": {"name": "glyphs", "num_classes": 18, "images_per_class": 6, "size": 20},
        "training": {"epochs": 1, "batch_size": 10, "images_per_class": 5, "image_size": 16},
        "losses": ["pnp"],
        "search": {"trials": 1, "objective": "recall_at_1"},
        "selection": {"finalists": 1, "seeds": 1},
    },
    "vary": {
        "protocol": {"fixed": {"final.seeds": 1}, "folds": {"split.folds": FOLDS, "final.seeds": SEEDS}},
    },
    "table": {"rows": ["loss"], "metrics": ["validation", "recall_at_1"], "roles": ["default"]},
}


@pytest.fixture(scope="module")
def dealt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Campaign, CampaignResult, Path]]:
    runs: Path = tmp_path_factory.mktemp("folds") / "runs"
    with campaign_here(runs, WRITTEN) as (campaign, result):
        yield campaign, result, runs


def test_each_fold_has_its_own_validation_and_test(dealt: tuple[Campaign, CampaignResult, Path]) -> None:
    _, result, runs = dealt
    assert {cell.coordinates["protocol"] for cell in result.folds} == {"folds"}, "a fixed part has no folds"
    found = {tuple(cell.coordinates[key] for key in ("training", "fold", "metric")): cell.mean for cell in result.folds}
    (opening,) = json.loads((runs / "dealt-folds" / "test.json").read_text())["openings"]
    seeds = sorted({score["seed"] for score in opening["scores"]}, key=[s["seed"] for s in opening["scores"]].index)
    assert {key: mean for key, mean in found.items() if key[2] == "recall_at_1"} == {
        (str(seeds.index(score["seed"]) + 1), str(score["fold"]), "recall_at_1"): score["metrics"]["recall_at_1"]
        for score in opening["scores"]
    }
    assert {key[:2] for key in found} == {(str(training), str(fold)) for training in (1, 2) for fold in (1, 2, 3)}
    entry = json.loads((runs / "dealt-folds" / "summary.json").read_text())["losses"]["pnp"]["default"]
    validated = [mean or 0 for key, mean in found.items() if key[2] == "validation"]
    assert sorted(validated) == sorted(entry["final"]["values"])
    mean = fmean(mean or 0 for key, mean in found.items() if key[2] == "recall_at_1")
    assert mean == pytest.approx(entry["test"]["recall_at_1"]["mean"])


def test_the_table_has_a_row_a_fold(dealt: tuple[Campaign, CampaignResult, Path]) -> None:
    campaign, result, _ = dealt
    (table,) = [table for table in campaign_tables(campaign.config, result) if table.title == "Folds"]
    assert table.header == ("loss", "training", "fold", "validation", "recall_at_1")
    per_cent = [f"{100 * (cell.mean or 0):.2f}" for cell in result.folds[-2:]]
    assert table.rows[-1] == ("pnp", "2", "3", *per_cent)
    assert len(table.rows) == FOLDS * SEEDS
    assert table in study(campaign.config, result).tables, "in the report too"
