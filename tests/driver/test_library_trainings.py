"""Trainings with PyTorch Lightning and sentence-transformers, from the example's file to verified scores."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sentence_transformers import SentenceTransformer
from support.commands import holdout_here
from support.finished_search import finish

from spaces.contract.check_part import check_part

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "training": {"epochs": 2},
    "search": {"trials": 2},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 1},
    "metrics": {"test": ["recall_at_1", "map_at_r"]},
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
]


def embeddings(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    vectors = np.repeat(rng.normal(size=(12, 8)), 6, axis=0) + rng.normal(size=(72, 8)) * 0.5
    labels = np.repeat([f"class-{number:02d}" for number in range(12)], 6)
    np.savez(folder / "mine.npz", embeddings=vectors, labels=labels)
    return folder / "mine.npz"


@pytest.mark.parametrize("name", ["lightning_training", "sentences"])
def test_an_example_is_tested_and_verified(name: str, tmp_path: Path) -> None:
    content = yaml.safe_load((ROOT / f"examples/{name}.yaml").read_text())
    if "file" in content["dataset"]:
        content["dataset"]["file"] = str(embeddings(tmp_path))
    finish(tmp_path / "runs", {**content, **SMALL})
    (row,) = json.loads((tmp_path / f"runs/{name}/summary.json").read_text())["losses"].values()
    assert 0 < row["default"]["test"]["map_at_r"]["mean"] <= 1
    holdout_here("verify", name, "--runs", tmp_path / "runs")
    saved = next((tmp_path / f"runs/{name}/models").glob("*/saved"))
    if name == "sentences":
        library = SentenceTransformer(str(saved / "model"), device="cpu")
        assert library.encode(["badaga mima"], show_progress_bar=False).shape == (1, 32)
    assert len((ROOT / f"examples/{name}.py").read_text().splitlines()) < 60


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("examples.lightning_training:LightningClassifier", {}),
        ("examples.sentences:SentenceTraining", {"name": "examples.texts:Languages"}),
    ],
)
def test_an_adapter_keeps_the_contract(path: str, options: dict[str, Any]) -> None:
    assert [outcome.sentence for outcome in check_part(path, options) if not outcome.ok] == []
