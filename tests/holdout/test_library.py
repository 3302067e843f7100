"""``import holdout``: searches run, opened and compared from Python."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

import holdout
from examples import search_from_python
from trainables.losses import LOSSES

Files = Callable[..., dict[str, Any]]


def tiny(search_file: Files, **changes: Any) -> dict[str, Any]:
    """A search of one loss that trains in moments."""
    small = {
        "losses": ["pnp"],
        "search": {"trials": 2, "pruner": "none"},
        "final": {"seeds": 1},
        "selection": {"finalists": 1, "seeds": 1},
    }
    return search_file(**{**small, **changes})


@pytest.mark.usefixtures("on_nodes")
def test_a_search_is_run_followed_opened_and_extended(search_file: Files, tmp_path: Path) -> None:
    epochs = []
    search = holdout.run(
        tiny(search_file),
        {"stages": ["search"]},
        runs=tmp_path,
        quiet=True,
        on_epoch=lambda study, number, record: epochs.append((study, number, record["epoch"])),
    )
    assert sorted(epochs) == [("pnp", number, epoch) for number in (0, 1) for epoch in (1, 2, 3)]

    trials = search.trials("pnp")
    assert list(trials["number"]) == [0, 1]
    assert set(trials["state"]) == {"COMPLETE"}
    assert trials["params_variant"][0] == "Dq"
    assert list(trials["epochs"]) == [3, 3]
    history = search.history("pnp", 1)
    assert list(history["epoch"]) == [1, 2, 3]
    assert history["map_at_r"].max() == trials["value"][1]
    study = optuna.load_study(study_name="small/pnp", storage=search.storage_url)
    assert [trial.value for trial in study.trials] == list(trials["value"])

    assert search.summary.losses["pnp"].trials.complete == 2
    assert search.summary.losses["pnp"].test is None
    extended = holdout.run(tiny(search_file), {"search.trials": 3}, runs=tmp_path, quiet=True)
    assert len(extended.trials("pnp")) == 3
    opened = holdout.open("small", runs=tmp_path)
    test = opened.summary.losses["pnp"].test
    assert test is not None
    assert 0 <= test["recall_at_1"].mean <= 1
    assert len(opened.trials("pnp@final")) >= 1
    assert opened.comparison() == holdout.compare("small", runs=tmp_path)


@pytest.mark.usefixtures("on_nodes")
def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    smaller = {"training": {"epochs": 1}, "search": {"trials": 1}, "final": {"seeds": 1}}
    for section, values in smaller.items():
        monkeypatch.setitem(search_from_python.CONTENT, section, values)
    search = search_from_python.main(str(tmp_path))
    assert search.losses == ("proxy_anchor", "circle_loss")
    assert "Circle loss on the test classes" in capsys.readouterr().out


def test_mistakes_come_all_at_once_and_nothing_is_created(search_file: Files, tmp_path: Path) -> None:
    with pytest.raises(holdout.Mistakes) as caught:
        holdout.run(tiny(search_file), {"search.sampler": "tpu", "losses": ["mpaa"]}, runs=tmp_path / "runs")
    assert len(caught.value.sentences) == 2
    assert not (tmp_path / "runs").exists()
    with pytest.raises(holdout.Mistakes, match="no search 'birds'"):
        holdout.open("birds", runs=tmp_path)


def test_losses_are_described_without_being_loaded() -> None:
    described = holdout.losses()
    assert list(described) == list(LOSSES)
    margin = described["proxy_anchor"].hyperparameters["margin"]
    assert (margin.default, margin.range) == (0.1, "0 to 1 by 0.1")


def test_embeddings_from_anywhere_are_scored() -> None:
    """Two classes on two axes: every nearest neighbour is of the class, and with them all R."""
    embeddings = np.array([[1, 0.0], [1, 0.1], [0, 1.0], [0.1, 1]])
    assert holdout.evaluate(embeddings, [0, 0, 1, 1], ["recall_at_1", "map_at_r"]) == {
        "recall_at_1": 1.0,
        "map_at_r": 1.0,
    }
    assert math.isclose(holdout.evaluate(embeddings, np.array([0, 1, 0, 1]))["recall_at_1"], 0.0)


def test_an_unknown_attribute_names_what_there_is() -> None:
    with pytest.raises(AttributeError, match="it has Failure, Mistakes"):
        holdout.serach  # noqa: B018
