"""Trainings with PyTorch Lightning and sentence-transformers: the contract, and a search to its verified scores."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.commands import holdout_here, summary
from support.finished_search import finish
from support.kinds import example

import holdout
from examples.texts import Languages
from examples.trainers import tiny
from spaces.contract.check_part import check_part

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
]


def test_sentence_transformers_are_tested_verified_and_embed_as_the_test_did(tmp_path: Path) -> None:
    runs, languages = tmp_path / "runs", Languages()
    dataset, changes = {"name": "examples.texts:Languages"}, {"search": {"trials": 1}, "final": {"seeds": 1}}
    trainable = "examples.trainers.lora:lora"
    content = example("function_training", dataset=dataset, trainable=trainable, training={"epochs": 1}, **changes)
    folder = finish(runs, {**content, "name": "lora"}) / "lora"
    assert 0 < summary(runs, "lora")["losses"]["lora"]["default"]["test"]["map_at_r"]["mean"] <= 1
    holdout_here("verify", "lora", "--runs", runs)
    saved = next((folder / "models").glob("*/saved"))
    model = holdout.load(saved.parent, trust_code=True)
    keys, test = languages.classes(), json.loads((folder / "split.json").read_text())["test"]
    texts = [languages.read(key) for name in test for key in keys[name]]
    labels = [name for name in test for _ in keys[name]]
    (opening,) = json.loads((folder / "test.json").read_text())["openings"]
    number = model.spec.origin["trial"]
    (scored,) = [entry for entry in opening["scores"] if entry["per_image"] == f"lora@final-{number}.npz"]
    again = holdout.evaluate(model.embed(texts), labels, ["map_at_r"])
    assert again["map_at_r"] == pytest.approx(scored["metrics"]["map_at_r"], abs=1e-6)
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
    assert [outcome.found for outcome in outcomes if not outcome.ok] == []
