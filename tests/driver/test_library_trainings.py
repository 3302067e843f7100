"""Trainings with PyTorch Lightning and sentence-transformers, from the example's file to verified scores."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.commands import holdout_here
from support.finished_search import finish

import holdout
from examples.texts import Languages
from examples.trainers import tiny
from spaces.contract.check_part import check_part

SMALL: dict[str, Any] = {
    "training": {"epochs": 1},
    "search": {"trials": 1},
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


def finished(name: str, dataset: dict[str, str], tmp_path: Path) -> Path:
    """Run a search of an example, verify it, and return its folder."""
    content = {"name": name, "trainable": f"examples.trainers.{name}:{name}", "dataset": dataset, **SMALL}
    folder = finish(tmp_path / "runs", content) / name
    (row,) = json.loads((folder / "summary.json").read_text())["losses"].values()
    assert 0 < row["default"]["test"]["map_at_r"]["mean"] <= 1
    holdout_here("verify", name, "--runs", tmp_path / "runs")
    return folder


def test_a_module_of_lightning_is_tested_and_verified(tmp_path: Path) -> None:
    finished("lightning_module", {"name": "features", "file": str(embeddings(tmp_path))}, tmp_path)


def test_sentence_transformers_are_tested_verified_and_embed_as_the_test_did(tmp_path: Path) -> None:
    folder, languages = finished("lora", {"name": "examples.texts:Languages"}, tmp_path), Languages()
    saved = next((folder / "models").glob("*/saved"))
    model = holdout.load(saved.parent, trust_code=True)
    keys, test = languages.classes(), json.loads((folder / "split.json").read_text())["test"]
    texts = [languages.read(key) for name in test for key in keys[name]]
    study, number = model.spec.origin["study"], model.spec.origin["trial"]
    with np.load(next(folder.glob(f"test/*/embeddings/{study}-{number}.npz"))) as kept:
        expected = kept["embeddings"] / np.linalg.norm(kept["embeddings"], axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(texts), expected, atol=1e-5)
    from sentence_transformers import SentenceTransformer  # takes seconds, also where this test is only collected

    library = SentenceTransformer(str(saved / "model"), device="cpu")
    assert library.encode(["badaga mima"], show_progress_bar=False).shape == (1, 32)


def test_pictures_and_texts_of_one_list_keep_their_places(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(tiny.clip()).save_pretrained(str(tmp_path / "model"), create_model_card=False)
    embed = holdout.SentenceTransformerTrainable.predictor(tmp_path, {}, device=torch.device("cpu"))
    items = tiny.signs()[0][:5]
    assert {type(item) for item in items} == {str, np.ndarray}
    torch.testing.assert_close(embed(items), torch.cat([embed([item]) for item in items]), rtol=1e-4, atol=1e-5)


def test_an_adapter_keeps_the_contract() -> None:
    outcomes = check_part("examples.trainers.lightning_module:lightning_module", {})
    assert [outcome.sentence for outcome in outcomes if not outcome.ok] == []
