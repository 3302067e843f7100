"""Searches on embeddings that somebody has computed and on those of a frozen backbone, up to the exported model."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from onnxruntime import InferenceSession
from support.commands import holdout_here, plain
from support.kinds import FEATURES, Finished, on_features
from support.refusals import sentences_of
from support.small_search import small_search

import holdout
from search.config.recipes import read_search
from search.config.search_config import parse_config
from search.plan.make_plan import make_plan, read_plan
from search.selection.retrieval_file import FOLDER, RetrievalFile
from trainables.inference.model_files import CARD, FROZEN

TRAINING = {"epochs": 3, "batch_size": 20, "images_per_class": 5}


@pytest.fixture(scope="module")
def file(kinds: Callable[[str], Finished]) -> Path:
    return Path(kinds("features").content["dataset"]["file"])


@pytest.fixture(scope="module")
def runs(kinds: Callable[[str], Finished]) -> Path:
    return kinds("features").runs


def test_the_untrained_row_is_the_features_themselves(runs: Path, file: Path) -> None:
    summary = json.loads((runs / "small/summary.json").read_text())
    with np.load(file) as content:
        test = content["labels"] >= "class-08"
        vectors = content["embeddings"][test] / np.linalg.norm(content["embeddings"][test], axis=1, keepdims=True)
        labels = content["labels"][test]
    similarities = vectors @ vectors.T
    np.fill_diagonal(similarities, -np.inf)
    recall = np.mean(labels[similarities.argmax(axis=1)] == labels)
    assert summary["untrained"]["test"]["recall_at_1"]["mean"] == pytest.approx(recall)


def assert_embeds_as_the_test_did(
    search: Finished, model: holdout.Embedder, items_of: Callable[[list[str]], Any]
) -> tuple[Any, np.ndarray]:
    """Compare with the kept embeddings of the test items, which ``items_of`` finds by their keys; return both."""
    opening, origin = search.folder / "test" / search.opening["id"], model.spec.origin
    name = f"{origin['study']}-{origin['trial']}.npz"
    kept = RetrievalFile.read(opening / FOLDER / name)
    with np.load(opening / name) as scored:
        items = items_of(scored["keys"][kept.sample_S].tolist())
    found: np.ndarray = model.embed(items)
    assert found.shape == kept.embeddings_SD.shape
    cosines = (found * kept.embeddings_SD).sum(axis=1) / np.linalg.norm(kept.embeddings_SD.astype(np.float32), axis=1)
    assert cosines.min() > 0.999
    return items, found


def test_the_model_maps_features_to_embeddings_as_the_test_did(
    kinds: Callable[[str], Finished], runs: Path, file: Path, tmp_path: Path
) -> None:
    exported = tmp_path / "model"
    holdout_here("export", "small", "--loss", "contrastive", "--to", exported, "--runs", runs)
    with np.load(file) as content:
        row_of = {key: row for row, key in enumerate(content["ids"].tolist())}
        features = content["embeddings"]
    items, found = assert_embeds_as_the_test_did(
        kinds("features"), holdout.load(exported), lambda keys: features[[row_of[key] for key in keys]]
    )
    program = InferenceSession((exported / "model.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    (of_onnx,) = program.run(None, {"images": items.astype(np.float32)})
    np.testing.assert_allclose(of_onnx, found, atol=1e-5)
    card = (exported / CARD).read_text()
    assert f"of float32 [N, {FEATURES}]" in card
    assert "photo" not in card
    assert "pixels" not in card


def test_the_handed_out_model_embeds_images_as_the_test_did(kinds: Callable[[str], Finished]) -> None:
    search = kinds("frozen backbone")
    model, root = holdout.load(search.folder / "models/proxy_anchor"), Path(search.content["dataset"]["root"])
    assert FROZEN in model.spec.origin
    assert_embeds_as_the_test_did(search, model, lambda keys: [root / key for key in keys])


def test_a_checkpoint_alone_is_refused(kinds: Callable[[str], Finished]) -> None:
    checkpoint = next((kinds("frozen backbone").folder / "trials").rglob("best.safetensors"))
    with pytest.raises(holdout.InvalidInput, match="holds only the layers behind a frozen backbone"):
        holdout.load(checkpoint)


def test_a_file_of_embeddings_is_indexed_and_queried(runs: Path, file: Path, tmp_path: Path) -> None:
    model = runs / "small/models/contrastive"
    with np.load(file) as content:
        np.savez(tmp_path / "queries.npz", embeddings=content["embeddings"][:2])
    holdout_here("index", model, file, "--to", tmp_path / "index")
    said = holdout_here("query", tmp_path / "index", tmp_path / "queries.npz", "-k", "3", "--json")
    queries = json.loads(said.stdout)["queries"]
    assert [query["path"] for query in queries] == ["row 0", "row 1"]
    assert [query["neighbours"][0]["path"] for query in queries] == ["text 0", "text 1"]
    holdout_here("embed", model, file, "--to", tmp_path / "embedded.parquet")
    holdout_here("index", model, file, tmp_path / "queries.npz", "--to", tmp_path / "both")
    found = holdout.ImageIndex.load(tmp_path / "both", holdout.load(model))
    assert len(found) == 162
    assert found.paths[-1].endswith("queries.npz: row 1")


def test_what_is_no_feature_is_a_sentence(runs: Path, tmp_path: Path) -> None:
    model = holdout.load(runs / "small/models/contrastive")
    for items, sentence in (
        (np.ones((2, 5)), "The model takes 12 features of each item, and they are of 2 × 5; give items × 12."),
        (np.full((1, FEATURES), np.nan), "not finite"),
        ([b"x"], "The model takes features and not images"),
        ("photo.jpg", r"must be one of \.npz"),
    ):
        with pytest.raises(holdout.InvalidInput, match=sentence):
            model.embed(items)
    (tmp_path / "photo.jpg").write_bytes(b"x")
    said = holdout_here(
        "embed", runs / "small/models/contrastive", tmp_path / "photo.jpg", "--to", tmp_path / "x.npz", code=2
    )
    assert "the suffix sets the format" in plain(said.stderr)


def test_init_writes_a_search_of_a_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = plain(holdout_here("init", file).stdout)
    assert f"160 embeddings of {FEATURES} numbers, of 16 classes" in said
    plan = make_plan(parse_config(read_search(Path("mine.yaml"))), tmp_path / "runs")
    assert (plan.config.name, plan.config.model.backbone) == ("mine", f"features:{FEATURES}")
    assert len(plan.split.test) == 8
    said = plain(holdout_here("init", file, "--backbone", "resnet18", "-o", "other.yaml", code=2).stderr)
    assert "leave out --backbone and --weights" in said


def test_mlflow_serves_the_model(runs: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holdout_here("sync", "small", "--runs", runs)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{runs}/mlflow.db")
    monkeypatch.setattr("sys.path", [*sys.path])  # the model brings its own code
    (experiment,) = MlflowClient().search_experiments(filter_string="name != 'Default'")
    found = MlflowClient().search_logged_models([experiment.experiment_id])
    (model,) = [model for model in found if model.name == "contrastive"]
    with np.load(file) as content:
        given = content["embeddings"][:5]
    served = mlflow.pyfunc.load_model(model.model_uri).predict(pd.DataFrame({"features": given.tolist()}))
    expected = holdout.load(runs / "small/models/contrastive").embed(given)
    np.testing.assert_allclose(np.stack(served["embedding"].tolist()), expected, atol=1e-6)


ROWS: list[tuple[dict[str, Any], str]] = [
    ({"model": {"backbone": "resnet18"}}, "model.backbone is resnet18, and the data are 12 features, not images"),
    (
        {"training": {**TRAINING, "image_size": 64, "augment": "crop"}},
        "training.image_size, training.augment: settings for images",
    ),
    ({"space": {"model": {"pooling": ["avg", "gem"]}}}, "space.model.pooling: settings for images"),
    ({"model": {"backbone": "features:9"}}, "model.backbone is features:9, and the data are 12 features"),
    ({"dataset": {"name": "features"}}, "dataset.file is missing: give a file of embeddings."),
    ({"dataset": {"name": "features", "file": "nowhere.npz"}}, "which does not exist. Give a file of embeddings."),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "sentence"), ROWS, ids=[sentence[:40] for _, sentence in ROWS])
def test_settings_of_images_are_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    content = on_features(tmp_path, **{"space": {}, **changes})
    (found,) = sentences_of(lambda: read_plan(content, tmp_path / "runs"))
    assert sentence in found


def test_one_class_or_single_items_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(20, 3))
    for labels, sentence in (
        (["one"] * 20, "There is one class"),
        (list(range(20)), "Each of the 20 classes has a single"),
    ):
        np.savez("x.npz", embeddings=rows, labels=labels)
        assert sentence in plain(holdout_here("init", "x.npz", code=2).stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_images_are_refused_by_a_network_of_features(image_folder: Path, tmp_path: Path) -> None:
    content = small_search(image_folder, model={"backbone": "features:12", "embedding_dim": 8})
    (found,) = sentences_of(lambda: read_plan(content, tmp_path / "runs"))
    assert "model.backbone is features:12, and the data set folder has images" in found
