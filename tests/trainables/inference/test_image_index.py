"""Neighbours by faiss equal those by plain products; an index is loaded as it was saved, or refused in a sentence."""

import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.mutations import OF_BYTES
from support.refusals import sentences_of
from support.small_disk import small_files
from support.small_model import SmallModel, small_model
from support.stores import ftp_store

import holdout
from trainables.common.errors import InvalidInput
from trainables.inference.embedder import Embedder
from trainables.inference.index import DESCRIPTION, PATHS, VECTORS, ImageIndex, Neighbour

Vectors = NDArray[np.float32]


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
        np.testing.assert_allclose([one.similarity for one in found], [value for _, value in true], atol=1e-6)
        similarity = {index.paths[row]: value for row, value in true}
        assert {one.path: one.similarity for one in found} == pytest.approx(similarity, abs=1e-6)
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


def test_a_full_disk_leaves_the_earlier_index(many: Vectors, model: Embedder, tmp_path: Path) -> None:
    ImageIndex.of(many[:2, :8].copy(), ["one", "two"], model).save(tmp_path / "index")
    before = {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    for larger in (ImageIndex.of(many, ["x"] * 4000, model), ImageIndex.of(many[:1], ["x" * 100_000], model)):
        with small_files(90_000), pytest.raises(InvalidInput, match="cannot be written"):
            larger.save(tmp_path / "index")
        assert {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()} == before


def test_an_index_of_another_model(made: SmallModel, model: Embedder, tmp_path: Path) -> None:
    other = holdout.load(small_model(tmp_path / "other", seed=8).folder, device="cpu")
    model.index(made.images).save(tmp_path / "index")
    (sentence,) = sentences_of(ImageIndex.load, tmp_path / "index", other)
    for part in (str(made.folder), str(other.address), model.weights_sha256[:12], other.weights_sha256[:12]):
        assert part in sentence
    checkpoint = holdout.load(made.checkpoint, device="cpu")  # the same weights in another file
    assert len(ImageIndex.load(tmp_path / "index", checkpoint)) == 60


SIZE = 400


@pytest.fixture(scope="module")
def files(many: Vectors, model: Embedder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("index")
    ImageIndex.of(many[:SIZE], [f"{row}.png" for row in range(SIZE)], model).save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def written(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def resealed(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files with the digests of their content, as somebody writes them who changes them on purpose."""
    described = json.loads(files[DESCRIPTION])
    described["sha256"] = {name: hashlib.sha256(files[name]).hexdigest() for name in (VECTORS, PATHS)}
    return files | {DESCRIPTION: json.dumps(described).encode()}


@pytest.mark.parametrize("mutation", [name for name in OF_BYTES if name != "removed"])
@pytest.mark.parametrize("file", [VECTORS, PATHS, DESCRIPTION])
def test_every_mutation_is_a_sentence_or_has_results(
    file: str, mutation: str, files: dict[str, bytes], many: Vectors, model: Embedder, tmp_path: Path
) -> None:
    draw = random.Random(f"{file} {mutation}")
    for _ in range(4):
        changed = files | {file: OF_BYTES[mutation](files[file], draw) or b""}
        try:
            index = ImageIndex.load(written(tmp_path / "index", changed), model)
        except InvalidInput as mistakes:
            (sentence,) = mistakes.sentences
            assert str(tmp_path / "index") in sentence
        else:
            assert file == DESCRIPTION, "a digest covers the other files"
            assert [len(neighbours) for neighbours in index.search(many[:3], 60)] == [60, 60, 60]


def _claims(at: int, form: str, value: int) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    """Return a change of the bytes at ``at`` of ``index.faiss``, with which the digest agrees."""

    def change(files: dict[str, bytes]) -> dict[str, bytes]:
        content = bytearray(files[VECTORS])
        struct.pack_into(form, content, at, value)
        return resealed(files | {VECTORS: bytes(content)})

    return change


def _another_structure(files: dict[str, bytes]) -> dict[str, bytes]:
    vectors = faiss.deserialize_index(np.frombuffer(files[VECTORS], np.uint8)).reconstruct_n(0, SIZE)
    index = faiss.index_factory(vectors.shape[1], "SQ8", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    return resealed(files | {VECTORS: faiss.serialize_index(index).tobytes()})


def _value(**values: object) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda files: files | {DESCRIPTION: json.dumps({**json.loads(files[DESCRIPTION]), **values}).encode()}


@pytest.mark.parametrize(
    "change",
    [
        _claims(4, "<i", 2**30),  # dimensions
        _claims(8, "<q", -1),  # rows
        _claims(33, "<i", 1),  # faiss's number of another similarity
        _claims(37, "<Q", 2**36),  # numbers that would be allocated
        _another_structure,
        _value(model=["/etc"]),
        _value(sha256={}),
    ],
)
def test_what_contradicts_itself_is_damaged(
    change: Callable[[dict[str, bytes]], dict[str, bytes]], files: dict[str, bytes], model: Embedder, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=r"^The index .* is damaged \(.*\); make it again\.$"):
        ImageIndex.load(written(tmp_path / "index", change(files)), model)
