"""Trainings with PyTorch Lightning and sentence-transformers, from the example's file to verified scores."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import holdout_here
from support.finished_search import finish

from spaces.contract.check_part import check_part

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
    vectors = np.repeat(rng.normal(size=(12, 16)), 6, axis=0) + rng.normal(size=(72, 16)) * 0.5
    labels = np.repeat([f"class-{number:02d}" for number in range(12)], 6)
    np.savez(folder / "mine.npz", embeddings=vectors, labels=labels)
    return folder / "mine.npz"


@pytest.mark.parametrize("name", ["lightning_module", "lora"])
def test_an_example_is_tested_and_verified(name: str, tmp_path: Path) -> None:
    of_texts = {"name": "examples.texts:Languages"}
    dataset = of_texts if name == "lora" else {"name": "features", "file": str(embeddings(tmp_path))}
    finish(
        tmp_path / "runs", {"name": name, "trainable": f"examples.trainers.{name}:{name}", "dataset": dataset, **SMALL}
    )
    (row,) = json.loads((tmp_path / f"runs/{name}/summary.json").read_text())["losses"].values()
    assert 0 < row["default"]["test"]["map_at_r"]["mean"] <= 1
    holdout_here("verify", name, "--runs", tmp_path / "runs")
    saved = next((tmp_path / f"runs/{name}/models").glob("*/saved"))
    if name == "lora":
        from sentence_transformers import SentenceTransformer  # takes seconds, also where this test is only collected

        library = SentenceTransformer(str(saved / "model"), device="cpu")
        assert library.encode(["badaga mima"], show_progress_bar=False).shape == (1, 32)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("examples.trainers.lightning_module:lightning_module", {}),
        ("examples.trainers.image_text:image_text", {"name": "examples.trainers.tiny:Signs"}),
    ],
)
def test_an_adapter_keeps_the_contract(path: str, options: dict[str, Any]) -> None:
    assert [outcome.sentence for outcome in check_part(path, options) if not outcome.ok] == []
