"""Neighbours by faiss equal those by plain products, and an index is loaded as it was saved."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pytorch_metric_learning.utils.inference import FaissKNN, InferenceModel
from support.refusals import sentences_of
from support.small_model import SmallModel, small_model
from support.stores import ftp_store

import holdout
from trainables.errors import InvalidInput
from trainables.inference.embedder import Embedder
from trainables.inference.index import ImageIndex, Neighbour

Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    return holdout.load(small_model(tmp_path_factory.mktemp("other"), seed=8).folder, device="cpu")


def unit(vectors_ND: NDArray[np.float64]) -> Vectors:
    return (vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def many() -> Vectors:
    """Return embeddings of overlapping classes, as of unseen classes: no single list holds all neighbours."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(100, 24))
    return unit(centres[random.integers(0, 100, 4000)] + 0.9 * random.normal(size=(4000, 24)))


def by_products(queries_QD: Vectors, vectors_ND: Vectors, k: int) -> list[list[tuple[int, float]]]:
    """Return the k nearest rows of each query by products in float64, the most similar first."""
    found = []
    for query in queries_QD.astype(np.float64):
        similarities = vectors_ND.astype(np.float64) @ query
        rows = sorted(range(len(vectors_ND)), key=lambda row: -similarities[row])[:k]
        found.append([(row, float(similarities[row])) for row in rows])
    return found


def test_neighbours_are_those_of_plain_products(made: SmallModel, model: Embedder) -> None:
    index = model.index(made.images)
    assert len(index) == 60
    queries = sorted(made.images.rglob("*.png"))[::7]
    embeddings = model.embed(made.images)
    expected = by_products(model.embed(queries), embeddings, 60)
    for found, true in zip(index.query(queries, k=60), expected, strict=True):
        assert sorted(neighbour.path for neighbour in found) == sorted(index.paths)
        np.testing.assert_allclose([one.similarity for one in found], [value for _, value in true], atol=1e-6)
        similarity = dict(zip((index.paths[row] for row, _ in true), (value for _, value in true)))
        for one in found:
            assert one.similarity == pytest.approx(similarity[one.path], abs=1e-6)
    unnamed = model.index([np.asarray(Image.open(queries[0])), queries[1], queries[2].read_bytes()])
    assert unnamed.paths == ("image 0", str(queries[1]), "image 2")
    assert index.query(queries[0], k=1) == [[Neighbour(path=str(queries[0]), similarity=pytest.approx(1, abs=1e-6))]]


def test_what_is_saved_is_what_is_loaded(many: Vectors, model: Embedder, tmp_path: Path) -> None:
    paths = [f"{number}.jpg" for number in range(len(many))]
    paths[3] = "Zürich \udcff ♥.jpg"  # file names need not be valid text
    index = ImageIndex.of(many, paths, model)
    with ftp_store(tmp_path) as url:
        index.save(f"{url}/index")
        loaded = ImageIndex.load(f"{url}/index", model)
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == ["index.faiss", "index.json", "paths.json"]
    assert loaded.description == index.description
    assert loaded.paths == index.paths
    assert loaded.search(many[:50], 7) == index.search(many[:50], 7)
    assert loaded.search(many[3:4], 1)[0][0].path == paths[3]
    content = json.loads((tmp_path / "index" / "index.json").read_text())
    assert (content["images"], content["dimensions"]) == (4000, 24)
    assert (content["model"], content["weights_sha256"]) == (model.address, model.weights_sha256)


def test_a_library_that_is_kept_reads_the_index(many: Vectors, model: Embedder, tmp_path: Path) -> None:
    """pytorch-metric-learning's inference model loads the file and finds the same neighbours."""
    index = ImageIndex.of(many, [str(row) for row in range(len(many))], model)
    index.save(tmp_path / "index")
    theirs = InferenceModel(
        torch.nn.Identity(), knn_func=FaissKNN(reset_before=False, reset_after=False), data_device="cpu"
    )
    theirs.load_knn_func(str(tmp_path / "index" / "index.faiss"))
    similarities, rows = theirs.get_nearest_neighbors(torch.from_numpy(many[:20]), k=5)
    ours = index.search(many[:20], 5)
    assert [[int(one.path) for one in found] for found in ours] == rows.tolist()
    np.testing.assert_allclose([[one.similarity for one in found] for found in ours], similarities.numpy(), atol=1e-6)


def test_an_index_is_written_over_an_index_alone(made: SmallModel, model: Embedder, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    model.index(made.images / "class-00").save(folder)
    model.index(made.images / "class-01").save(folder)
    assert ImageIndex.load(folder, model).paths[0] == str(made.images / "class-01" / "00.png")
    (folder / "index.json").unlink()  # as if killed before the last file
    with pytest.raises(InvalidInput, match="is not an index"):
        ImageIndex.load(folder, model)
    model.index(made.images / "class-01").save(folder)
    photographs = {path: path.read_bytes() for path in (made.images / "class-00").iterdir()}
    with pytest.raises(InvalidInput, match=r"holds files that are not an index's \(00\.png\)"):
        model.index(made.images).save(made.images / "class-00")
    assert {path: path.read_bytes() for path in (made.images / "class-00").iterdir()} == photographs
    with pytest.raises(InvalidInput, match="is a file, and an index is a folder"):
        model.index(made.images).save(made.folder / "model.json")


def test_an_index_of_another_model(made: SmallModel, model: Embedder, other: Embedder, tmp_path: Path) -> None:
    model.index(made.images).save(tmp_path / "index")
    (sentence,) = sentences_of(lambda: ImageIndex.load(tmp_path / "index", other))
    for part in (str(made.folder), str(other.address), model.weights_sha256[:12], other.weights_sha256[:12]):
        assert part in sentence
    checkpoint = holdout.load(made.checkpoint, device="cpu")  # the same weights in another file
    assert len(ImageIndex.load(tmp_path / "index", checkpoint)) == 60


def test_sizes_that_do_not_fit(made: SmallModel, model: Embedder, many: Vectors) -> None:
    index = model.index(made.images)
    with pytest.raises(InvalidInput, match="embeddings of 8 dimensions, and the queries are of 4000 × 24; give"):
        index.search(many)
    with pytest.raises(InvalidInput, match=r"are of 8; give them as queries × 8"):
        index.search(model.embed(made.images)[0])
    with pytest.raises(InvalidInput, match="there are 2 paths, and embeddings of 4000 × 24"):
        ImageIndex.of(many, ["a", "b"], model)
    with pytest.raises(InvalidInput, match="there are 0 paths, and embeddings of 0 × 24"):
        ImageIndex.of(many[:0], [], model)
