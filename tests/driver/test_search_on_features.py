"""A search on the features of a frozen backbone, from its file to the model that is handed out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
import yaml
from support.commands import holdout_here
from support.finished_search import run_here
from support.refusals import refused
from support.small_search import draw_folder, small_search

import holdout
from search.selection.retrieval_file import FOLDER, RetrievalFile
from search.stages import Stage
from trainables.inference.model_files import FROZEN

NETWORK = {"backbone": "resnet18", "freeze": "backbone", "embedding_dim": 8}
TRAINING = {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 32}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.manual_seed(3)
    torch.save(torchvision.models.resnet18().state_dict(), path)
    return path


@pytest.fixture(scope="module")
def content(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return small_search(
        draw_folder(tmp_path_factory.mktemp("frozen") / "images", classes=16),
        model={**NETWORK, "weights": str(weights)},
        training=TRAINING,
        losses=["proxy_anchor"],
        space={"model": {"head": ["linear", "mlp"], "embedding_dim": [8, 16]}},
        search={"trials": 3},
    )


@pytest.fixture(scope="module")
def runs(content: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that is done; not to be changed."""
    runs = tmp_path_factory.mktemp("runs")
    for search in run_here(runs, [content]):
        trials = search.study("proxy_anchor", Stage.SEARCH).trials()
        assert all({"model.head", "model.embedding_dim"} <= trial.params.keys() for trial in trials)
        search.close()
    return runs


def test_it_can_be_verified(runs: Path) -> None:
    said = holdout_here("verify", "small", "--runs", runs)
    assert said.returncode == 0


def test_the_handed_out_model_embeds_images_as_the_test_did(runs: Path, content: dict[str, Any]) -> None:
    model = holdout.load(runs / "small/models/proxy_anchor")
    assert FROZEN in model.spec.origin
    (opening,) = (runs / "small/test").iterdir()
    name = f"{model.spec.origin['study']}-{model.spec.origin['trial']}.npz"
    kept = RetrievalFile.read(opening / FOLDER / name)
    with np.load(opening / name) as file:
        keys = file["keys"]
    root = Path(content["dataset"]["root"])
    found = model.embed([root / keys[row] for row in kept.sample_S])
    cosines = (found * kept.embeddings_SD).sum(axis=1) / np.linalg.norm(kept.embeddings_SD.astype(np.float32), axis=1)
    assert cosines.min() > 0.999


def test_a_checkpoint_alone_is_refused(runs: Path) -> None:
    checkpoint = next((runs / "small/trials").rglob("best.safetensors"))
    with pytest.raises(holdout.InvalidInput, match="holds only the layers behind a frozen backbone"):
        holdout.load(checkpoint)


def test_views_need_a_frozen_backbone(content: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    model = {**content["model"], "freeze": None}
    file.write_text(yaml.safe_dump({**content, "model": model, "training": {**TRAINING, "views": 4}}))
    refused(tmp_path, ["run", file], "training.views is 4, and model.freeze is not backbone")
