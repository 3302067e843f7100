"""The folds of a cross-validation in a campaign's result, against what the search itself kept of each model."""

import csv
import json
from pathlib import Path
from statistics import fmean

import pytest
from support.commands import holdout_here, summary
from support.kinds import FinishedCampaign
from support.tampered import Copied

from search.campaigns.report import study
from search.campaigns.tables import campaign_tables
from search.plan.runs import RunFolder
from search.plan.stored import StoredSearch
from search.report.comparison import compare
from search.report.results import stored_summary
from search.report.sections.models import models_section

FOLDS, SEEDS = 2, 2


def test_each_fold_has_its_own_validation_and_test(lot: FinishedCampaign) -> None:
    result, runs = lot.result, lot.runs
    assert {cell.coordinates["split"] for cell in result.folds} == {"folds"}, "a fixed part has no folds"
    found = {tuple(cell.coordinates[key] for key in ("training", "fold", "metric")): cell.mean for cell in result.folds}
    (opening,) = json.loads((runs / "lot-folds" / "test.json").read_text())["openings"]
    scores = [score for score in opening["scores"] if score["source_trial"] == 0]
    seeds = list(dict.fromkeys(score["seed"] for score in scores))
    assert {key: mean for key, mean in found.items() if key[2] == "recall_at_1"} == {
        (str(seeds.index(score["seed"]) + 1), str(score["fold"]), "recall_at_1"): score["metrics"]["recall_at_1"]
        for score in scores
    }
    assert {key[:2] for key in found} == {(str(training), str(fold)) for training in (1, 2) for fold in (1, 2)}
    entry = json.loads((runs / "lot-folds" / "summary.json").read_text())["losses"]["pnp"]["default"]
    validated = [mean or 0 for key, mean in found.items() if key[2] == "validation"]
    assert sorted(validated) == sorted(entry["final"]["values"])
    mean = fmean(mean or 0 for key, mean in found.items() if key[2] == "recall_at_1")
    assert mean == pytest.approx(entry["test"]["recall_at_1"]["mean"])


def test_the_table_has_a_row_a_fold(lot: FinishedCampaign) -> None:
    campaign, result = lot.campaign, lot.result
    (table,) = [table for table in campaign_tables(campaign.config, result) if table.title == "Folds"]
    assert table.header == ("loss", "training", "fold", "validation", "recall_at_1")
    per_cent = [f"{100 * (cell.mean or 0):.2f}" for cell in result.folds[-2:]]
    assert table.rows[-1] == ("pnp", "2", "2", *per_cent)
    assert len(table.rows) == FOLDS * SEEDS
    assert table in study(campaign.config, result).tables, "in the report too"


def test_the_models_of_all_folds_are_shown(lot: FinishedCampaign) -> None:
    """Two folds of two seeds: four models per configuration, and two independent samples."""
    folder = RunFolder(lot.runs, "lot-folds")
    section = models_section(StoredSearch(folder), compare([folder], [stored_summary(folder)]))
    assert "4 models of 1 configuration" in section.sentences[0]
    assert any(entry.name == "gallery-worst" for entry in section.figures)


def test_asked_for_again_the_result_is_printed_at_once_and_written_to_files(
    lot: FinishedCampaign, tmp_path: Path
) -> None:
    runs = Copied(lot.runs, tmp_path / "runs", "lot").runs
    command = ("run", runs / "lot" / "campaign.yaml", "--runs", runs)
    files = [tmp_path / f"lot{suffix}" for suffix in (".csv", ".md", ".tex")]
    outputs = [word for file in files for word in ("--output", str(file))]
    result = json.loads(holdout_here(*command, *outputs, "--json").stdout)
    assert result == json.loads((runs / "lot" / "campaign.json").read_text())
    assert len(result["cells"]) == 3 * 2
    for cell in result["cells"]:
        entry = summary(runs, f"lot-{cell['coordinates']['split']}")["losses"]["pnp"]["default"]
        expected = entry["confirmed"] if cell["coordinates"]["metric"] == "validation" else entry["test"]["recall_at_1"]
        assert cell["values"] == expected["values"]
    records = list(csv.DictReader(files[0].read_text().splitlines()))
    assert [float(record["mean"]) for record in records] == [cell["mean"] for cell in result["cells"]]
    for file in files[1:]:
        assert lot.campaign.config.study in file.read_text()
