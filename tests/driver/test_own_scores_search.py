"""Searches with trainings that score their items themselves, from their files to the verified scores."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from mlflow import MlflowClient
from scipy.stats import ttest_ind
from support.commands import holdout_here, write_search
from support.finished_search import run_here
from support.refusals import refused

import holdout as library
from search.config.search_config import parse_config
from search.plan.runs import RunFolder
from search.report.comparison import compare_stored
from search.report.sections.outcome import outcome
from search.report.statistics import ScoredRows
from trainables.mistakes import Mistakes

OWN = "support.own_trainings:"


def content(name: str, path: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "trainable": f"{OWN}{path}",
        "dataset": {"name": f"{OWN}ManyRecords"},
        "training": {"epochs": 3},
        "search": {"trials": 4},
        "split": {"ratio": 0.6},
        "selection": {"finalists": 1, "seeds": 1},
        "final": {"seeds": 3},
        **changes,
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished searches with a value per item, with numbers only, and with a function; not to be changed."""
    runs = tmp_path_factory.mktemp("runs")
    for name, path in (("items", "Nearest"), ("numbers", "OfNumbers"), ("function", "scored_scales")):
        objective = {"search": {"trials": 6, "seed": 1, "objective": "neg_distance"}} if name != "function" else {}
        for search in run_here(runs, [content(name, path, **objective)]):
            search.close()
    return runs


@pytest.mark.parametrize(
    ("name", "basis"),
    [
        ("items", "hit, neg_distance from the values per item, and largest_share as recorded only"),
        ("numbers", "hit, neg_distance, largest_share as recorded only (single numbers; --retrain computes"),
        ("function", "hit, neg_norm from the values per item"),
    ],
)
def test_a_search_is_tested_and_verified(runs: Path, name: str, basis: str) -> None:
    (row,) = json.loads((runs / name / "summary.json").read_text())["losses"].values()
    assert row["default"]["test"].keys() == row["test"].keys() >= {"hit"}
    said = holdout_here("verify", name, "--runs", runs, "--trust-code")
    assert basis in " ".join(said.stdout.split())


def test_the_defaults_are_the_declared_metrics() -> None:
    config = parse_config(content("items", "Nearest"))
    assert config.objective == "hit"
    assert config.metrics.validation == config.test_metrics == ("hit", "neg_distance", "largest_share")
    assert parse_config(yaml.safe_load(config.to_yaml())) == config


def test_the_report_ends_with_the_choices_below_their_default(runs: Path, tmp_path: Path) -> None:
    holdout_here("report", "items", "--runs", runs, "--output", tmp_path / "report.html", "--trust-code")
    assert re.search(
        r"Of 3 tested choices in this runs folder, (none|\d) ended below the default",
        (tmp_path / "report.html").read_text(),
    )


def test_the_registry_says_that_it_takes_no_such_models(runs: Path) -> None:
    refusal = " ".join(holdout_here("register", "items", "--runs", runs, "--trust-code", code=2).stderr.split())
    assert f"MLflow cannot serve those of {OWN}Nearest, a training of your own" in refusal


def test_the_test_keeps_the_values_of_each_item(runs: Path) -> None:
    record = json.loads((runs / "items/test.json").read_text())["openings"][0]
    for model in record["scores"]:
        with np.load(runs / "items/test" / record["id"] / model["per_image"]) as kept:
            assert {*kept} == {"labels", "keys", "hit", "neg_distance", "largest_share"}
            for name, value in model["metrics"].items():
                assert value == pytest.approx(float(np.mean(kept[name])))
            assert kept["neg_distance"].shape == kept["keys"].shape
        assert model["per_item"] == ["hit", "neg_distance"]


def test_pairs_of_values_per_item_are_tested_over_classes_and_seeds(runs: Path) -> None:
    comparison = compare_stored([RunFolder(runs, "items")])
    for pair in comparison.pairs:
        assert (pair.metric, pair.of_classes) == ("neg_distance", True)
    assert comparison.pairs


def test_numbers_are_tested_over_seeds_alone(runs: Path) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=5), rng.normal(size=5) + 1
    sums = {"first": first[:, None], "second": second[:, None]}
    found = ScoredRows(sums, np.array([1])).contrast({"first": 1.0, "second": -1.0})
    assert found.value == pytest.approx(first.mean() - second.mean())
    plain = ttest_ind(first, second)
    assert found.p == pytest.approx(plain.pvalue, rel=0.5)  # variances are shrunk towards their mean
    repeated = {name: np.repeat(values, 6, axis=1) for name, values in sums.items()}
    same = ScoredRows(repeated, np.ones(6, dtype=np.int64)).contrast({"first": 1.0, "second": -1.0})
    assert (found.value, found.p, *found.ci95) == pytest.approx((same.value, same.p, *same.ci95))


def test_equal_rows_of_numbers_seldom_differ() -> None:
    rng, wrong, tables = np.random.default_rng(1), 0, 400
    for _ in range(tables):
        sums = {name: rng.normal(size=(3, 1)) for name in "abc"}
        scored = ScoredRows(sums, np.array([1]))
        pairs = [("a", "b"), ("a", "c"), ("b", "c")]
        wrong += any(scored.contrast({first: 1.0, second: -1.0}, 3).differs for first, second in pairs)
    assert wrong / tables < 0.08


@pytest.mark.parametrize(
    ("name", "method"), [("items", "over test classes and"), ("numbers", "over final seeds alone")]
)
def test_tables_and_reports_say_what_the_intervals_cover(runs: Path, name: str, method: str) -> None:
    comparison = compare_stored([RunFolder(runs, name)])
    assert comparison.test_metrics == ("neg_distance", "hit", "largest_share")
    said = " ".join(holdout_here("compare", name, "--runs", runs, "--trust-code").stdout.split())
    assert method in said
    holdout_here("report", name, "--runs", runs, "--trust-code")
    page = (runs / name / "report.html").read_text()
    assert "The training scores its items itself" in page
    assert "was removed" not in page


def test_the_card_says_how_it_is_scored(runs: Path, tmp_path: Path) -> None:
    holdout_here("export", "numbers", "--to", tmp_path / "model", "--runs", runs, "--trust-code")
    card = (tmp_path / "model/README.md").read_text()
    assert (
        "The training computes these metrics itself, and the test kept numbers only; intervals are over seeds." in card
    )
    assert "model.predict(items)" in card
    assert "unit length" not in card
    head = yaml.safe_load(card.split("---")[1])
    assert head["tags"] == ["of_numbers"]
    assert "pipeline_tag" not in head
    assert {entry["type"] for entry in head["model-index"][0]["results"][0]["metrics"]} >= {"neg_distance", "hit"}


def test_mlflow_has_the_scores(runs: Path) -> None:
    holdout_here("sync", "items", "--runs", runs, "--trust-code")
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    experiment = client.get_experiment_by_name("items")
    assert experiment is not None
    logged = [run.data.metrics for run in client.search_runs([experiment.experiment_id])]
    assert any("validation/neg_distance" in metrics for metrics in logged)
    assert any("test/neg_distance" in metrics for metrics in logged)


def test_a_trial_is_trained_again(runs: Path) -> None:
    trial = library.open("numbers", runs=runs).losses[0] + "@final:0"
    said = holdout_here("verify", "numbers", "--runs", runs, "--trust-code", "--retrain", trial)
    assert "retrained, bit for bit the same" in " ".join(said.stdout.split())


@pytest.mark.parametrize(("name", "array"), [("items", "neg_distance"), ("numbers", "hit")])
def test_verify_finds_changed_scores(runs: Path, tmp_path: Path, name: str, array: str) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    changed = next((tmp_path / "runs" / name / "test").glob("*/*.npz"))
    with np.load(changed) as kept:
        arrays = dict(kept)
    np.savez_compressed(changed, **{**arrays, array: arrays[array] + 0.25})
    said = holdout_here("verify", name, "--runs", tmp_path / "runs", "--trust-code", code=1)
    assert f"{changed.name} {array}: " in said.stderr


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        (
            {"search": {"objective": "map_at_r"}, "metrics": {"test": ["recall_at_1", "hits"]}},
            [
                "search.objective: map_at_r, a metric of embeddings, is not one of the metrics that the training",
                "or hits is not one of the metrics that the training declares (did you mean hit?)",
            ],
        ),
        (
            {"metrics": {"validation": ["nmi"]}},
            ["metrics.validation: nmi, a metric of embeddings, is not one of"],
        ),
        (
            {"metrics": {"gallery": "training_half"}},
            ["metrics.gallery: support.own_trainings:Nearest declares its metrics and ranks nothing; remove the"],
        ),
        ({"trainable": f"{OWN}Undeclared"}, ["has a method score and declares no metrics"]),
        ({"trainable": f"{OWN}Missing", "search": {"objective": "hit"}}, ["does not exist"]),
        ({"trainable": f"{OWN}Scales", "search": {"objective": "hit"}}, ["search.objective: hit is not known"]),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence(tmp_path: Path, changes: dict[str, Any], sentences: list[str]) -> None:
    path = write_search(tmp_path / "search.yaml", {**content("items", "Nearest"), **changes})
    refused(tmp_path, ["run", path, "--runs", tmp_path / "runs"], *sentences)


def test_other_metrics_cannot_be_given_later(runs: Path) -> None:
    stored = yaml.safe_load((runs / "items/search.yaml").read_text())
    with pytest.raises(Mistakes, match="is not one of the metrics that the training declares"):
        parse_config({**stored, "metrics": {**stored["metrics"], "test": ["nmi"]}})


def test_the_way_from_search_to_test_has_no_galleries(runs: Path) -> None:
    comparison = compare_stored([RunFolder(runs, "items")])
    (figure,) = [figure for figure in outcome(comparison).figures if figure.name == "way-down"]
    assert figure.table.header == ("loss", "search", "confirmed", "final", "test")
    assert "galler" not in figure.finding
    assert "from there to all" in figure.finding
