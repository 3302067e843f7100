"""Searches with several objectives and constraints, from their files to the verified scores."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, plain
from support.finished_search import run_here
from support.kinds import QUALITY, WEIGHT, Finished, trade

from search.config.search_config import validate_config
from search.driver.stages import FailedLosses
from search.stages import Stage
from search.trials import epochs_of
from trainables.inference.model_files import LOSS, read_tensors


def result(search: Finished) -> dict[str, Any]:
    (row,) = search.summary["losses"].values()
    return row  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("several objectives", "chosen of the Pareto front of quality, weight (lower)"),
        ("constraints", "only configurations with weight < 0.5 are chosen"),
    ],
)
def test_it_is_shown(kinds: Callable[[str], Finished], kind: str, rule: str) -> None:
    search = kinds(kind)
    compared = plain(holdout_here("compare", search.name, "--runs", search.runs, "--trust-code").stdout)
    assert "Pareto front on the validation classes" in compared
    assert rule in json.loads((search.folder / "selection.json").read_text())["rule"]


def test_the_front_is_what_no_trial_beats(kinds: Callable[[str], Finished]) -> None:
    # The quality grows with the weight almost without noise: nearly every trial is on the front.
    search = kinds("several objectives")
    holdout_here("report", search.name, "--runs", search.runs, "--trust-code")
    assert "Pareto front" in (search.folder / "report.html").read_text()
    front = result(search)["front"]
    assert len(front) >= 4
    by_weight = sorted(front, key=lambda entry: entry["searched"]["weight"])
    assert by_weight == sorted(front, key=lambda entry: entry["searched"]["quality"])
    (chosen,) = (entry for entry in front if entry["chosen"])
    assert chosen["confirmed"]["weight"] == chosen["searched"]["weight"]
    selected = json.loads((search.folder / "selection.json").read_text())
    (choice,) = selected["chosen"].values()
    assert choice["params"]["weight"] == pytest.approx(chosen["confirmed"]["weight"])  # float32
    assert choice["measured"] == chosen["confirmed"]
    assert [len(choice["values"]), choice["failed"]] == [2, 0]
    assert "on the Pareto front" in next(iter(selected["reasons"].values()))


def test_the_choice_meets_the_constraint_that_the_default_does_not(kinds: Callable[[str], Finished]) -> None:
    row = result(kinds("constraints"))
    assert row["default"]["params"]["weight"] == 0.9
    assert row["confirmed"]["params"]["weight"] < 0.5
    (entry,) = row["front"]
    assert entry["chosen"]
    assert entry["searched"]["weight"] < 0.5


def test_without_a_configuration_that_meets_it_nothing_is_chosen(tmp_path: Path) -> None:
    content = trade("never", {"objective": QUALITY, "trials": 2, "constraints": {WEIGHT: "> 2"}})
    with pytest.raises(FailedLosses, match=r"of trial \d, weight is [\d.]+, which must be > 2\.\nNothing was chosen"):
        run_here(tmp_path, [content])
    assert not (tmp_path / "never/selection.json").exists()


def test_costs_of_a_network_are_measured(search_file: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    content = search_file(
        losses=["triplet"],
        space={"triplet": {"margin": 0.2}, "model": {"embedding_dim": [8, 64]}},
        search={"trials": 3, "pruner": "none", "objectives": ["map_at_r", "-size_mb", "-embed_ms"]},
        training={"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        stages=["search", "select"],
        selection={"finalists": 1, "seeds": 1},
    )
    (search,) = run_here(tmp_path, [content])
    trials = search.trials("triplet", Stage.SEARCH)
    sizes = {}
    for trial in trials:
        (record,) = epochs_of(trial)
        assert record["metrics"]["embed_ms"] > 0
        sizes[trial.params["model.embedding_dim"]] = record["metrics"]["size_mb"]
        best = tmp_path / f"small/trials/triplet/{trial.number:04d}" / str(record["checkpoint"])
        if best.exists():
            tensors = {name: entry for name, entry in read_tensors(best)[0].items() if not name.startswith(LOSS)}
            assert record["metrics"]["size_mb"] == sum(entry.nbytes for entry in tensors.values()) / 1e6
    assert len(sizes) == 2
    assert sizes[64] > sizes[8]
    search.close()
    holdout_here("verify", "small", "--runs", tmp_path, "--retrain", "triplet:1")


@pytest.mark.parametrize("goal", [{"constraints": {"embed_ms": "< 5"}}, {"objectives": ["map_at_r", "-embed_ms"]}])
@pytest.mark.parametrize("place", ["model", "space"])
def test_the_time_of_a_frozen_network_is_not_measured(
    search_file: Callable[..., dict[str, Any]], goal: dict[str, Any], place: str
) -> None:
    model: dict[str, Any] = {"weights": "weights.pth"}
    choices = {"space": {"model": {"freeze": [None, "backbone"]}}} if place == "space" else {}
    model |= {"freeze": "backbone"} if place == "model" else {}
    content = search_file(search={"pruner": "none", **goal}, model=model, **choices)
    (sentence,) = validate_config(content).sentences
    assert sentence.startswith(f"search.{next(iter(goal))}: embed_ms is the time of the whole network")
    del content["search"][next(iter(goal))]
    assert not validate_config(content).sentences
