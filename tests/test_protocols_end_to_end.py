"""One real search through Ray with everything that may differ from the fixed split: noise, folds, merged classes."""

import json
from pathlib import Path

import pytest
from commands import holdout, plain, stored, summary, write_search
from conftest import draw_folder, small_search
from mlflow_rows import assert_mlflow_equals_the_studies

from search.study import epochs_of

EPOCHS = 2


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that has gone through all of its life; half of its classes make two merged ones a fold."""
    path = tmp_path_factory.mktemp("protocols")
    content = small_search(
        draw_folder(path / "images"),
        split={"folds": 2, "merge": 2},
        training={"epochs": EPOCHS, "batch_size": 10, "image_size": 16},
        losses=["mpa"],
        search={"trials": 2},
        noise={"seeds": 2, "splits": 1},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1},
        stages=["noise", "search", "select", "test"],
    )
    done = holdout("run", write_search(path / "small.yaml", content), "--runs", path / "runs")
    said = plain(done.stderr)
    assert "Noise of mpa: map_at_r" in said
    assert "no trial is pruned, 2 folds are too few" in said
    assert "8 classes train (every 2 as one) and validate in 2 folds, 8 test" in plain(done.stdout)
    return path / "runs"


def test_every_trial_trained_every_fold(place: Path) -> None:
    for course in ("mpa@noise", "mpa", "mpa@confirm"):
        for trial in stored(place, "small", course):
            places = [(record["fold"], record["epoch"]) for record in epochs_of(trial)]
            assert places == [(fold, epoch) for fold in (1, 2) for epoch in range(1, EPOCHS + 1)]
            assert sorted(trial.intermediate_values) == [1, 2]
    assert len(stored(place, "small", "mpa@noise")) == 3
    assert summary(place, "small")["noise"]["split_std"] is not None


def test_every_fold_s_model_is_scored(place: Path) -> None:
    (opening,) = json.loads((place / "small" / "test.json").read_text())["openings"]
    finals = stored(place, "small", "mpa@final")
    assert len(opening["scores"]) == len(finals)
    assert [trial.user_attrs["fold"] for trial in finals] == [1, 2] * (len(finals) // 2)
    assert len(summary(place, "small")["losses"]["mpa"]["test"]["map_at_r"]["values"]) == 2


def test_mlflow_equals_the_studies(place: Path) -> None:
    assert_mlflow_equals_the_studies(place, "small", ("mpa",))
    assert not list((place / "small" / "trials").rglob("last.pt"))
