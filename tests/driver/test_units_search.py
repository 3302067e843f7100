"""Searches whose split is by group or by time, from their files to the verified scores, and their mistakes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from support.commands import holdout_here, write_search
from support.finished_search import run_here
from support.refusals import refused

import holdout
from search.config.search_config import validate_config
from spaces.contract.check_part import check_part
from trainables.mistakes import Mistakes

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "search": {"trials": 3},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 2},
}
TIMES = {"by": "time", "until": "2024-02-01", "test_from": "2024-03-01"}


class Logistic(holdout.EstimatorTrainable):
    """A classifier of vectors."""

    metrics = ("accuracy", "neg_log_loss", "f1_macro")
    space = {"C": holdout.Float(0.01, 100.0, log=True, default=1.0)}  # noqa: RUF012

    def estimator(self, params: Any, *, seed: int) -> Any:
        return LogisticRegression(C=params["C"])


class NoScorer(Logistic):
    metrics = ("acuracy",)


def example() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "examples/topics.yaml").read_text())
    return {**content, **SMALL}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of three classes in each of ninety days."""
    rng = np.random.default_rng(0)
    labels = np.arange(180) % 3
    days = np.array(["2024-01-01"], dtype="datetime64[D]") + np.arange(180) // 2
    path = tmp_path_factory.mktemp("vectors") / "days.npz"
    vectors = np.eye(3)[labels] + rng.normal(size=(180, 3)) * 0.7
    np.savez(path, embeddings=vectors, labels=labels, times=days.astype(str))
    return path


def of_days(file: Path, **changes: Any) -> dict[str, Any]:
    return {
        "name": "days",
        "trainable": "test_units_search:Logistic",
        "dataset": {"name": "features", "file": str(file)},
        "training": {"epochs": 1},
        "split": TIMES,
        **SMALL,
        **changes,
    }


@pytest.fixture(scope="module")
def runs(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    for content in (example(), of_days(file)):
        for search in run_here(runs, [content]):
            search.close()
    return runs


@pytest.mark.parametrize(
    ("name", "noun", "metrics"),
    [("topics", "groups", ("neg_log_loss", "accuracy")), ("days", "periods", ("accuracy", "neg_log_loss"))],
)
def test_a_search_is_tested_verified_and_shown(runs: Path, name: str, noun: str, metrics: tuple[str, ...]) -> None:
    (row,) = json.loads((runs / name / "summary.json").read_text())["losses"].values()
    assert {*row["test"]} == {*metrics, "f1_macro"}
    said = holdout_here("verify", name, "--runs", runs, "--trust-code").stdout
    assert f"{', '.join(metrics)} from the values per item, and f1_macro as recorded only" in " ".join(said.split())
    assert f"{noun} train, " in " ".join(holdout_here("compare", name, "--runs", runs, "--trust-code").stdout.split())
    holdout_here("report", name, "--runs", runs, "--trust-code")
    assert f" {noun} train, " in (runs / name / "report.html").read_text()
    assert f"Scores on the test {noun}" in next((runs / name / "models").glob("*/README.md")).read_text()


def test_the_score_is_that_of_scikit_learn_on_the_later_days(runs: Path, file: Path) -> None:
    with np.load(file) as content:
        vectors, labels, times = (content[name] for name in ("embeddings", "labels", "times"))
    vectors = vectors.astype(np.float32)
    train, test = times < "2024-02-01", times >= "2024-03-01"
    record = json.loads((runs / "days/test.json").read_text())["openings"][0]
    trials = json.loads((runs / "days/selection.json").read_text())
    for model in record["scores"]:
        (choice,) = (trials["chosen"] if model["source_trial"] else trials["defaults"]).values()
        own = LogisticRegression(C=choice["params"]["C"]).fit(vectors[train], labels[train])
        found = model["metrics"]
        assert found["accuracy"] == pytest.approx(accuracy_score(labels[test], own.predict(vectors[test])))
        assert found["neg_log_loss"] == pytest.approx(-log_loss(labels[test], own.predict_proba(vectors[test])))
        assert model["per_item"] == ["accuracy", "neg_log_loss"]


def test_the_sealed_unit_is_the_group(runs: Path) -> None:
    split = json.loads((runs / "topics/split.json").read_text())
    assert split["by"] == "group"
    record = json.loads((runs / "topics/test.json").read_text())["openings"][0]
    with np.load(runs / "topics/test" / record["id"] / record["scores"][0]["per_image"]) as kept:
        assert {f"author-{key.split('/')[1]}" for key in kept["keys"].tolist()} == {*split["test"]}
        assert [split["test"][label] for label in kept["labels"]] == [
            f"author-{key.split('/')[1]}" for key in kept["keys"].tolist()
        ]


def test_the_example_keeps_the_contract_and_is_short() -> None:
    outcomes = list(check_part("examples.topics:TopicClassifier", {"name": "examples.topics:Messages"}))
    assert [outcome.sentence for outcome in outcomes if not outcome.ok] == []
    assert [outcome.sentence for outcome in check_part("test_units_search:Logistic", {}) if not outcome.ok] == []
    assert len((ROOT / "examples/topics.py").read_text().splitlines()) < 60


def items(names: tuple[str, ...], count: int = 30) -> holdout.Items:
    rng = np.random.default_rng(1)
    return holdout.Items(
        items=rng.normal(size=(count, 3)).astype(np.float32), labels=rng.integers(0, 2, size=count), class_names=names
    )


def trained(kind: type[Logistic], names: tuple[str, ...]) -> Logistic:
    import torch

    own = kind()
    own.setup({"C": 1.0}, items(names), seed=0, device=torch.device("cpu"))
    own.train_epoch()
    return own


def test_a_class_without_training_items_has_a_finite_score() -> None:
    own = trained(Logistic, ("a", "b", "never"))
    found = own.score(
        holdout.Items(items=np.zeros((1, 3), np.float32), labels=np.array([2]), class_names=("a", "b", "never"))
    )
    assert found["accuracy"].tolist() == [False]
    assert -50 < found["neg_log_loss"][0] < -10


def test_a_classifier_is_not_scored_on_other_classes() -> None:
    with pytest.raises(Mistakes, match=r"set split\.by to group or time"):
        trained(Logistic, ("a", "b")).score(items(("c", "d")))


def test_an_unknown_scorer_is_a_sentence_before_anything_runs(file: Path) -> None:
    (sentence,) = validate_config(of_days(file, trainable="test_units_search:NoScorer")).mistakes
    assert (
        "names the metric acuracy, and scikit-learn has no such scorer (did you mean accuracy?); name another"
        in sentence
    )


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        (
            {"trainable": "examples.discriminant:Discriminant"},
            ["split.by is time, and the search is scored by retrieval among unseen classes, for which the classes are"],
        ),
        ({"split": {"by": "group"}}, ["split.by is group, and no item of the data set has a group; give groups (the"]),
        (
            {"split": {"by": "time"}},
            ["split: until is missing; a split by time", "split: test_from is missing; a split"],
        ),
        (
            {"split": {**TIMES, "folds": 3, "merge": 2, "test": ["a"]}},
            [
                "split: test is ('a',), which a split by time does not use; remove it.",
                "split: folds is 3, which a split by time does not use",
                "split: merge is 2, which a split by time does not use",
            ],
        ),
        ({"split": {"until": 3}}, ["split: until is 3, which a split by class does not use; remove it."]),
        ({"split": {"by": "day"}}, ["split.by: "]),
        ({"split": {**TIMES, "until": "2024-04-01"}}, ["split.until is 2024-04-01 and test_from 2024-03-01"]),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence(
    file: Path, tmp_path: Path, changes: dict[str, Any], sentences: list[str]
) -> None:
    path = write_search(tmp_path / "search.yaml", of_days(file, **changes))
    refused(tmp_path, ["run", path, "--runs", tmp_path / "runs"], *sentences)
