"""A user-defined training that is sent to a cluster with its search."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import holdout, plain, write_search
from support.services import ROOT, Nodes

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("on_nodes")]

SMALL: dict[str, Any] = {
    "search": {"trials": 3, "pruner": "none"},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 2},
    "metrics": {"test": ["recall_at_1", "map_at_r"]},
    "resources": {"engine": "ray"},
}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("vectors") / "mine.npz"
    embeddings = np.repeat(rng.normal(size=(12, 16)), 6, axis=0) + rng.normal(size=(72, 16)) * 0.5
    np.savez(path, embeddings=embeddings, labels=np.repeat([f"class-{number:02d}" for number in range(12)], 6))
    return path


def test_a_training_travels_with_a_submitted_search(
    nodes: Nodes, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package of the training can be imported where the search is submitted, and nowhere on the cluster."""
    package = tmp_path / "packages" / "shipped_lab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "losses.py").write_text((ROOT / "examples/function_training.py").read_text())
    content = {
        "name": "travels",
        "trainable": "shipped_lab.losses:contrast",
        "dataset": {"name": "features", "file": str(vectors)},
        "training": {"epochs": 2},
        **SMALL,
    }
    runs, file, there = tmp_path / "runs", tmp_path / "travels.yaml", ("--address", nodes.address)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))

    refusal = plain(holdout("submit", write_search(file, content), "--runs", runs, *there, code=2).stderr)
    assert "add `ship: [shipped_lab]` to the file" in refusal

    holdout("submit", write_search(file, content | {"ship": ["shipped_lab"]}), "--runs", runs, *there)
    holdout("logs", "travels", "--follow", *there)
    (row,) = json.loads((runs / "travels" / "summary.json").read_text())["losses"].values()
    assert row["test"]["map_at_r"]["mean"] > 0
    holdout("verify", "travels", "--runs", runs, "--trust-code")
