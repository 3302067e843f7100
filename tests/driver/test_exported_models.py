"""Searches on embeddings, on those of a frozen backbone, and with trainings of a user's own, to the exported models."""

import json
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from onnxruntime import InferenceSession
from support.commands import holdout_here, refusal
from support.forks import forked
from support.kinds import FEATURES, Finished, Kinds, on_features
from support.refusals import sentences_of
from support.small_search import small_search

import holdout
from examples.texts import Languages
from search.driver.make_plan import read_plan
from search.records.retrieval_file import FOLDER, RetrievalFile
from trainables.inference.model_files import FROZEN

LONG = "\N{LATIN SMALL LETTER E WITH ACUTE}" * 127 + "x"
"""A name of 255 bytes."""
TRAINING = {"epochs": 3, "batch_size": 20, "images_per_class": 5}


@pytest.fixture(scope="module")
def file(kinds: Kinds) -> Path:
    return Path(kinds("features").content["dataset"]["file"])


@pytest.fixture(scope="module")
def runs(kinds: Kinds) -> Path:
    return kinds("features").runs


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


def export_until(_: Connection, to: Path, runs: Path, file: str) -> None:
    """Export a model, and die where ``file`` would be complete."""
    replace = Path.replace

    def killing(path: Path, target: Path) -> Path:
        if target.name == file:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(path, target)

    no_gpu = mock.patch("torch.cuda.is_available", return_value=False)
    with no_gpu, mock.patch.object(Path, "replace", killing):
        holdout_here("export", "small", "--loss", "contrastive", "--to", to, "--runs", runs)


@pytest.mark.parametrize("killed_at", ["model.safetensors", pytest.param("model.json", marks=pytest.mark.slow)])
def test_a_killed_export_is_repeated_and_embeds_as_the_test_did_in_every_form(
    killed_at: str, kinds: Kinds, runs: Path, file: Path, tmp_path: Path
) -> None:
    exported = tmp_path / LONG
    (other := tmp_path / ".other.1-0.draft").mkdir()
    killed, _ = forked(export_until, exported, runs, killed_at)
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert not exported.exists()
    assert len(list(tmp_path.iterdir())) == 2, "its draft, which no command takes for a model"
    arguments = ("small", "--loss", "contrastive", "--to", exported, "--runs", runs, "--json")
    said = json.loads(holdout_here("export", *arguments).stdout)
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, LONG]
    names = ["README.md", "model.json", "model.onnx", "model.safetensors"]
    assert sorted(path.name for path in exported.iterdir()) == names

    with np.load(file) as content:
        row_of = {key: row for row, key in enumerate(content["ids"].tolist())}
        features = content["embeddings"]
    model = holdout.load(exported)
    assert model.spec == holdout.open("small", runs=runs).best_model("contrastive").spec
    items, found = assert_embeds_as_the_test_did(
        kinds("features"), model, lambda keys: features[[row_of[key] for key in keys]]
    )
    program = InferenceSession((exported / "model.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    (of_onnx,) = program.run(None, {"images": items.astype(np.float32)})
    np.testing.assert_allclose(of_onnx, found, atol=1e-5)
    (onnx,) = said["programs"]
    assert (onnx["reason"], onnx["difference"] <= 1e-5) == (None, True)
    for words in (f"| {onnx['file']} ", f"of float32 [N, {FEATURES}]"):
        assert words in model.card.replace("\\_", "_")
    assert "photo" not in model.card
    assert "pixels" not in model.card


def test_the_handed_out_model_embeds_images_as_the_test_did(kinds: Kinds) -> None:
    search = kinds("frozen backbone")
    model, root = holdout.load(search.folder / "models/proxy_anchor"), Path(search.content["dataset"]["root"])
    assert FROZEN in model.spec.origin
    assert_embeds_as_the_test_did(search, model, lambda keys: [root / key for key in keys])


def test_a_checkpoint_alone_is_refused(kinds: Kinds) -> None:
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


def test_what_a_model_does_not_take_is_a_sentence(runs: Path, kinds: Kinds, tmp_path: Path) -> None:
    model = holdout.load(runs / "small/models/contrastive")
    for items, sentence in (
        (np.ones((2, 5)), "The model takes 12 features of each item, and they are of 2 × 5; give items × 12."),
        (np.full((1, FEATURES), np.nan), "not finite"),
        ([b"x"], "The model takes features and not images"),
    ):
        with pytest.raises(holdout.InvalidInput, match=sentence):
            model.embed(items)
    (words := tmp_path / "words.txt").write_text("dada bibi")
    own = kinds("own class").folder / "models/languages"
    assert "is no file of embeddings" in refusal("embed", own, words, "--to", tmp_path / "x.npz", "--trust-code")
    assert not (tmp_path / "x.npz").exists()


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


# Trainings of a user's own.


def test_the_exported_model_is_what_the_training_saved_and_embeds_as_the_test_did(kinds: Kinds, tmp_path: Path) -> None:
    texts = (search := kinds("own class")).runs
    holdout_here("export", "texts", "--to", tmp_path / "model", "--runs", texts, "--trust-code")
    assert [path.name for path in (tmp_path / "model/saved").iterdir()] == ["state.pt"]
    card = (tmp_path / "model/README.md").read_text()
    assert "A model of `examples.texts:LanguageTraining` (lr=" in card
    assert "photo" not in card
    with pytest.raises(
        holdout.InvalidInput, match=r"a user-defined training, examples\.texts:LanguageTraining, whose code"
    ):
        holdout.load(tmp_path / "model")
    model = holdout.load(tmp_path / "model", trust_code=True)
    assert isinstance(model, holdout.OwnModel)
    assert json.loads((tmp_path / "model/model.json").read_text())["weights_sha256"] == model.weights_sha256
    items, _ = assert_embeds_as_the_test_did(search, model, lambda keys: [*map(Languages().read, keys)])
    index = model.index(items, items)
    assert [found.path for (found,) in index.query(items[3:5], k=1)] == items[3:5]
    index.save(tmp_path / "index")
    best = holdout.open("texts", runs=texts, trust_code=True).best_model()
    assert len(holdout.ImageIndex.load(tmp_path / "index", best)) == len(items)


def test_a_training_without_predictor_says_so(kinds: Kinds) -> None:
    search = holdout.open("discriminant", runs=kinds("own class without epochs").runs, trust_code=True)
    with pytest.raises(holdout.InvalidInput, match="has no predictor, which loads a model without training items"):
        search.best_model("discriminant")


# What is refused.

ROWS: list[tuple[dict[str, Any], str]] = [
    (
        {"training": {**TRAINING, "image_size": 64, "augment": "crop"}},
        "training.image_size, training.augment: settings for images",
    ),
    ({"space": {"model": {"pooling": ["avg", "gem"]}}}, "space.model.pooling: settings for images"),
    ({"model": {"backbone": "features:9"}}, "model.backbone is features:9, and the data are 12 features, not images"),
    ({"dataset": {"name": "features", "file": "nowhere.npz"}}, "which does not exist. Give a file of embeddings."),
]


@pytest.mark.parametrize(("changes", "sentence"), ROWS, ids=[sentence[:40] for _, sentence in ROWS])
def test_settings_of_images_are_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    content = on_features(tmp_path, **{"space": {}, **changes})
    (found,) = sentences_of(lambda: read_plan(content, tmp_path / "runs"))
    assert sentence in found


def test_images_are_refused_by_a_network_of_features(image_folder: Path, tmp_path: Path) -> None:
    content = small_search(image_folder, model={"backbone": "features:12", "embedding_dim": 8})
    (found,) = sentences_of(lambda: read_plan(content, tmp_path / "runs"))
    assert "model.backbone is features:12, and the data set folder has images" in found
