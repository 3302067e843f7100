"""The recommended model of a search, also one without training: named, exported, loaded and registered."""

import json
import re
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient
from sklearn.decomposition import PCA
from support.bare_networks import BACKBONE, TRAINING, bare_features, save_convnet
from support.commands import holdout_here, plain
from support.finished_search import run_here
from support.small_search import draw_glyphs, small_search

import holdout
from search.driver.stages import recorded_outcome
from search.driver.synchronise import make_projection, register
from search.plan.make_plan import reopened
from search.plan.runs import RunFolder, stored_split
from search.plan.search import open_search

FEW: dict[str, Any] = {"search": {"trials": 2}, "selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}}
NAMES = {"frozen": "whitened or untrained", "plain": "a loss"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_glyphs(tmp_path_factory.mktemp("glyphs") / "images")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_convnet(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def runs(images: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of two finished searches, with a head that hardly learns and without weights."""
    runs = tmp_path_factory.mktemp("recommended") / "runs"
    frozen = {"backbone": BACKBONE, "weights": str(weights), "freeze": "backbone", "embedding_dim": 8}
    for name, changes in (("frozen", {"model": frozen, "losses": ["pnp"]}), ("plain", {"losses": ["pnp", "triplet"]})):
        content = small_search(images, training={**TRAINING, "epochs": 2, "lr": 1e-8}, **FEW, **changes)
        for search in run_here(runs, [{**content, "name": name}]):
            search.close()
    return runs


def recommended(runs: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((runs / name / "selection.json").read_text())["recommended"]
    return content


def words(content: dict[str, Any]) -> str:
    """Return the end of the recommendation's sentence, or all of it if it has no hyperparameters."""
    if content["number"] is None:
        return f"Recommended: the {content['loss']} network ({content['basis']})"
    return f" ({content['basis']})" if not content["number"] else f" (trial {content['number']}, {content['basis']})"


def test_what_no_training_beats_is_recommended(runs: Path) -> None:
    found = recommended(runs, "frozen")
    assert found["loss"] in ("untrained", "whitened")
    assert found["number"] is None
    assert "no training is better: pnp, the best one, is " in found["basis"]
    assert recommended(runs, "plain")["loss"] in ("pnp", "triplet")


@pytest.mark.parametrize("name", NAMES)
def test_every_place_names_the_same_model(runs: Path, name: str) -> None:
    found = recommended(runs, name)
    assert json.loads((runs / name / "summary.json").read_text())["recommended"] == found
    for command in ("compare", "run"):
        arguments = (name,) if command == "compare" else (runs / name / "search.yaml",)
        shown = plain(holdout_here(command, *arguments, "--runs", runs).stdout)
        first = shown.partition("Better than its default")[0].strip()
        assert first.startswith("Recommended: ")
        assert first.endswith(f"{words(found)}."), command
    shown = json.loads(holdout_here("compare", name, "--runs", runs, "--json").stdout)
    (summary,) = shown["searches"]
    assert summary["recommended"] == found
    holdout_here("report", name, "--runs", runs)
    page = re.sub(
        r"</?(code|wbr)>", lambda tag: "`" if "code" in tag[0] else "", (runs / name / "report.html").read_text()
    )
    assert "Recommended: " in page
    assert page.index("Recommended: ") < page.index("<table")
    for folder in (runs / name / "models").iterdir():
        card = (folder / "README.md").read_text()
        assert card.partition(f"# {name}: {folder.name}\n\n")[2].splitlines()[0].endswith(f"{words(found)}.")
    answer = holdout.open(name, runs=runs).answer
    assert all(line in unescape(page) for line in answer.lines)
    assert first == answer.recommended


@pytest.mark.parametrize("name", NAMES)
def test_mlflow_s_champion_is_the_recommended_model(runs: Path, name: str) -> None:
    with closing(open_search(reopened(runs, name))) as search:
        registered = register(recorded_outcome(search), make_projection(search.plan), name)
    client = MlflowClient(tracking_uri=f"sqlite:///{runs / 'mlflow.db'}")
    model = client.get_registered_model(name)
    loss = recommended(runs, name)["loss"]
    assert registered.best == loss
    assert {alias: str(version) for alias, version in model.aliases.items()} == {"champion": registered.versions[loss]}
    assert words(recommended(runs, name)) in model.description
    assert client.get_model_version_by_alias(name, "champion").tags["holdout.loss"] == loss


# Networks without training.


def similarities(embeddings: np.ndarray) -> np.ndarray:
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return unit @ unit.T


def test_networks_without_training_embed_and_the_recommended_one_is_exported(
    runs: Path, images: Path, weights: Path, tmp_path: Path
) -> None:
    split = stored_split(RunFolder(runs, "frozen"))
    paths = [path for of_class in split.test[:3] for path in sorted((images / of_class).iterdir())]
    trained = [path for of_class in split.train for path in sorted((images / of_class).iterdir())]
    untrained = bare_features(paths, weights)
    whitening = PCA(8, whiten=True, svd_solver="full").fit(bare_features(trained, weights))
    holdout_here("export", "frozen", "--to", tmp_path / "model", "--runs", runs)
    exported, found = holdout.load(tmp_path / "model", device="cpu"), recommended(runs, "frozen")
    for name, expected in (("untrained", untrained), ("whitened", whitening.transform(untrained))):
        opened = holdout.open("frozen", runs=runs).best_model(name, device="cpu")
        for model in (opened, exported) if name == found["loss"] else (opened,):
            embedded = model.embed(paths)
            assert embedded.shape == expected.shape
            np.testing.assert_allclose(similarities(embedded), similarities(expected), rtol=1e-4, atol=1e-4)
    card = (tmp_path / "model/README.md").read_text()
    assert card.startswith("---\n")
    assert f"# frozen: {found['loss']}" in card
    assert words(found) in card


def test_the_recommended_one_is_loaded_by_default(runs: Path, images: Path) -> None:
    found = recommended(runs, "frozen")["loss"]
    default, named = (holdout.open("frozen", runs=runs).best_model(loss, device="cpu") for loss in (None, found))
    paths = sorted(images.rglob("*.png"))[::20]
    assert np.array_equal(default.embed(paths), named.embed(paths))
    origin = holdout.open("plain", runs=runs).best_model(device="cpu").spec.origin
    assert origin["loss"] == recommended(runs, "plain")["loss"]
