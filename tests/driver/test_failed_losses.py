"""A loss that fails in every trial stops its search before the choice, unless ``--allow-failed`` is given."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import holdout_here, plain, summary, write_search
from support.own_parts import Pull
from support.small_search import small_search
from support.without_ray import only_records

import holdout

CHANGES: dict[str, Any] = {
    "training": {"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
    "losses": ["pnp", f"{__name__}:Raises", f"{__name__}:BecomesNan"],
    "search": {"trials": 2},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 1},
    "metrics": {"test": ["recall_at_1"]},
    "resources": {"engine": "in_process"},
}


class Raises(Pull):
    """A loss with a bug."""

    name = "raises"

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        raise IndexError("no such anchor")


class BecomesNan(Pull):
    """A loss that is not a number."""

    name = "becomes_nan"

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        return super().compute(embeddings_BD, labels_B) * float("nan")


def test_losses_that_always_fail_stop_the_search_before_its_choice(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_records(monkeypatch)
    runs, file = tmp_path / "runs", write_search(tmp_path / "small.yaml", small_search(image_folder, **CHANGES))
    said = plain(holdout_here("run", file, "--runs", runs, code=1).stderr)
    error = "failed (CODE_ERROR in 2 of 2). The first error: IndexError: no such anchor."
    assert f"Every trial of small/raises {error}" in said
    assert "`holdout trials small raises 0`" in said
    assert "Every trial of small/becomes_nan failed (DIVERGED in 2 of 2)." in said
    assert "to continue with pnp." in said
    assert not (runs / "small" / "selection.json").exists()
    assert not (runs / "test_openings.jsonl").exists()

    again = holdout_here("run", file, "--runs", runs, code=1).stderr
    assert "Every trial of small/raises failed" in plain(again)
    assert "Starting" not in again, "nothing is started"
    assert "Every trial of small/raises failed" in plain(holdout_here("select", "small", "--runs", runs, code=1).stderr)
    with pytest.raises(holdout.Failure, match=r"allow_failed=True\) to continue with pnp"):
        holdout.run(file, runs=runs, quiet=True)

    chosen = {"stages": ["search", "select"]}
    assert holdout.run(file, chosen, runs=runs, quiet=True, allow_failed=True).summary.losses["pnp"].tuned.confirmed
    (runs / "small" / "selection.json").unlink()
    holdout_here("run", file, "--runs", runs, "--allow-failed")
    assert list(json.loads((runs / "small" / "selection.json").read_text())["chosen"]) == ["pnp"]
    tests = {loss: entry["test"] for loss, entry in summary(runs, "small")["losses"].items()}
    assert tests["pnp"]["recall_at_1"]["values"]
    assert tests["raises"] is None
    holdout_here("run", file, "--runs", runs)  # the choice is made
