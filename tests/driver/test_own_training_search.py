"""Searches with trainings of a user's own, from their files to the tested, verified and exported models."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.commands import holdout_here, summary
from support.kinds import Finished, example

import holdout as library
from examples.texts import Languages
from search.config.search_config import parse_config


@pytest.fixture(scope="module")
def runs(kinds: Callable[[str], Finished]) -> Path:
    """The runs folder of the texts example."""
    return kinds("own class").runs


def test_the_class_is_the_row_of_every_table(runs: Path) -> None:
    assert list(summary(runs, "texts")["losses"]) == ["languages"]
    assert library.open("texts", runs=runs).losses == ("languages",)
    stored = yaml.safe_load((runs / "texts/search.yaml").read_text())
    assert stored["losses"] == [{"name": "languages", "part": "examples.texts:LanguageTraining"}]
    assert parse_config(stored).losses == parse_config(example("texts")).losses


def test_the_score_is_that_of_the_kept_embeddings(kinds: Callable[[str], Finished]) -> None:
    search = kinds("own class")
    opening = search.folder / "test" / search.opening["id"]
    for model in search.opening["scores"]:
        with (
            np.load(opening / model["per_image"]) as scored,
            np.load(opening / "embeddings" / model["per_image"]) as kept,
        ):
            labels, found = scored["labels"], kept["embeddings"].astype(np.float64)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        similarity = found @ found.T
        np.fill_diagonal(similarity, -np.inf)
        assert model["metrics"]["recall_at_1"] == pytest.approx(np.mean(labels[similarity.argmax(axis=1)] == labels))


def test_the_exported_model_is_what_the_training_saved_and_embeds_as_the_test_did(runs: Path, tmp_path: Path) -> None:
    holdout_here("export", "texts", "--to", tmp_path / "model", "--runs", runs, "--trust-code")
    assert [path.name for path in (tmp_path / "model/saved").iterdir()] == ["state.pt"]
    card = (tmp_path / "model/README.md").read_text()
    assert "A model of `examples.texts:LanguageTraining` (lr=" in card
    assert "photo" not in card
    with pytest.raises(
        library.InvalidInput, match=r"a user-defined training, examples\.texts:LanguageTraining, whose code"
    ):
        library.load(tmp_path / "model")
    model = library.load(tmp_path / "model", trust_code=True)
    assert isinstance(model, library.OwnModel)
    assert json.loads((tmp_path / "model/model.json").read_text())["weights_sha256"] == model.weights_sha256
    test = json.loads((runs / "texts/split.json").read_text())["test"]
    classes = Languages().classes()
    texts = [Languages().read(key) for name in test for key in classes[name]]
    (opening,) = (runs / "texts/test").iterdir()
    with np.load(opening / f"embeddings/{model.spec.origin['study']}-{model.spec.origin['trial']}.npz") as kept:
        expected = kept["embeddings"] / np.linalg.norm(kept["embeddings"], axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(texts), expected, atol=1e-6)
    index = model.index(texts, texts)
    assert [found.path for (found,) in index.query(texts[3:5], k=1)] == texts[3:5]
    index.save(tmp_path / "index")
    best = library.open("texts", runs=runs).best_model(trust_code=True)
    assert len(library.ImageIndex.load(tmp_path / "index", best)) == len(texts)


def test_a_training_without_predictor_says_so(kinds: Callable[[str], Finished]) -> None:
    search = library.open("discriminant", runs=kinds("own class without epochs").runs)
    with pytest.raises(library.InvalidInput, match="has no predictor, which loads a model without training items"):
        search.best_model("discriminant", trust_code=True)


def test_the_command_line_gives_a_model_files_of_embeddings_only(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("dada bibi")
    arguments = (runs / "texts/models/languages", tmp_path / "words.txt", "--to", tmp_path / "found.npz")
    said = holdout_here("embed", *arguments, "--trust-code", code=2)
    assert "is no file of embeddings" in said.stderr.replace("\n", " ")
    assert not (tmp_path / "found.npz").exists()
