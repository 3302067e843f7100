"""A search that ranks validation images among half of the training images, with and without folds."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, stored
from support.finished_search import run_here
from support.small_search import small_search

from search.trials import epochs_of

CHANGES: dict[str, Any] = {
    "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 10, "centres": 2, "size": 20},
    "losses": ["pnp"],
    "training": {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16},
    "metrics": {"gallery": "training_half", "validation": ["recall_at_1", "dists_ratio"]},
    "search": {"trials": 1},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 1},
}


@pytest.mark.parametrize("split", [{}, pytest.param({"folds": 2}, marks=pytest.mark.slow)], ids=["one part", "folds"])
def test_it_passes_and_retrains(tmp_path: Path, split: dict[str, Any]) -> None:
    runs = tmp_path / "runs"
    for name, gallery in (("small", "training_half"), ("alone", "validation")):
        content = small_search(tmp_path, **CHANGES, name=name, split=split)
        content["metrics"] = {**CHANGES["metrics"], "gallery": gallery}
        for search in run_here(runs, [content]):
            search.close()
    half, alone = (epochs_of(stored(runs, name, "pnp")[0]) for name in ("small", "alone"))
    for ranked, other in zip(half, alone, strict=True):
        assert ranked["loss"] == other["loss"], "the training is the same"
        assert ranked["metrics"]["map_at_r"] <= other["metrics"]["map_at_r"]
        assert ranked["metrics"]["dists_ratio"] == other["metrics"]["dists_ratio"], "no ranking"
    assert [record["metrics"]["map_at_r"] for record in half] != [record["metrics"]["map_at_r"] for record in alone]
    lines = holdout_here("verify", "small", "--runs", runs, "--retrain", "pnp:0").stdout.splitlines()
    assert all(line.startswith("ok  ") for line in lines), lines
    of_loss = json.loads((runs / "small" / "summary.json").read_text())["losses"]["pnp"]
    assert of_loss["test"] is not None
    assert of_loss["test_small"] is None, "the test has no gallery like the validation's"
