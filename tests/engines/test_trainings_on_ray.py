"""The examples of user-defined trainings on a cluster: killed in the middle, resumed, tested and verified."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.trial import TrialState
from support.commands import holdout, kill_when, plain, stored, write_search
from support.services import ROOT, Nodes

from search.config.search_config import parse_config
from search.trials import record_keys

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("on_nodes")]

SMALL: dict[str, Any] = {
    "search": {"trials": 3, "pruner": "none"},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 2},
    "metrics": {"test": ["recall_at_1", "map_at_r"]},
    "resources": {"engine": "ray"},
}
EXAMPLES = {
    "function_training": "examples.function_training:contrast",
    **{name: f"examples.trainers.{name}:{name}" for name in ("lightning_module", "pairs", "discriminant")},
}
FROM_PYTHON = """
import sys, holdout
result = holdout.run(sys.argv[1], runs=sys.argv[2])
(row,) = result.summary.losses.values()
print("tested", row.test["map_at_r"].mean)
"""


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("vectors") / "mine.npz"
    embeddings = np.repeat(rng.normal(size=(12, 16)), 6, axis=0) + rng.normal(size=(72, 16)) * 0.5
    np.savez(path, embeddings=embeddings, labels=np.repeat([f"class-{number:02d}" for number in range(12)], 6))
    return path


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_killed_resumed_and_verified(name: str, vectors: Path, tmp_path: Path) -> None:
    of_texts = {"name": "examples.texts:Languages"}
    dataset = of_texts if name == "pairs" else {"name": "features", "file": str(vectors)}
    training = {"epochs": 1 if name == "discriminant" else 8}
    content = {"name": name, "trainable": EXAMPLES[name], "dataset": dataset, "training": training, **SMALL}
    runs, file = tmp_path / "runs", write_search(tmp_path / f"{name}.yaml", content)
    (row,) = parse_config(content).loss_names

    def epochs() -> dict[tuple[int, str], Any]:
        return {
            (trial.number, key): trial.user_attrs[key]["metrics"]  # a second attempt writes another checkpoint
            for trial in stored(runs, name, row)
            for key in record_keys(trial)
        }

    kill_when(lambda: bool(epochs()), "run", file, "--runs", runs)
    before = epochs()
    done = subprocess.run(
        [sys.executable, "-c", FROM_PYTHON, file, runs], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tested = json.loads((runs / name / "summary.json").read_text())["losses"][row]["test"]["map_at_r"]["mean"]
    assert float(plain(done.stdout).rpartition("tested ")[2]) == tested > 0
    assert [trial.state for trial in stored(runs, name, row)] == [TrialState.COMPLETE] * 3
    assert before.items() <= epochs().items()
    holdout("verify", name, "--runs", runs)


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
