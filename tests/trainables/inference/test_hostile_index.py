"""Changed index folders: each is refused in a sentence, or answers queries with results of the right shape."""

import hashlib
import json
import random
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray
from support.mutations import OF_BYTES

from trainables.errors import InvalidInput
from trainables.inference.images import ImageLike
from trainables.inference.index import DESCRIPTION, PATHS, VECTORS, ImageIndex

SIZE, DIMENSIONS = 400, 8


class Model:
    """A model that the index only identifies."""

    address: str | None = "/models/birds"
    weights_sha256 = "0123456789abcdef" * 4

    def embed(self, images: ImageLike | Iterable[ImageLike]) -> NDArray[np.float32]:
        """Compute nothing."""
        raise NotImplementedError


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    drawn = np.random.default_rng(0).normal(size=(SIZE, DIMENSIONS))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def files(vectors: NDArray[np.float32], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("index")
    ImageIndex.of(vectors, [f"{row}.png" for row in range(SIZE)], Model()).save(folder)
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
    file: str, mutation: str, files: dict[str, bytes], vectors: NDArray[np.float32], tmp_path: Path
) -> None:
    draw = random.Random(f"{file} {mutation}")
    for _ in range(4):
        changed = files | {file: OF_BYTES[mutation](files[file], draw) or b""}
        try:
            index = ImageIndex.load(written(tmp_path / "index", changed), Model())
        except InvalidInput as mistakes:
            (sentence,) = mistakes.sentences
            assert str(tmp_path / "index") in sentence
        else:
            assert file == DESCRIPTION, "a digest covers the other files"
            found = index.search(vectors[:3], 60)
            assert [len(neighbours) for neighbours in found] == [60, 60, 60]


def _claims(at: int, form: str, value: int) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    """Return a change of the bytes at ``at`` of ``index.faiss``, with which the digest agrees."""

    def change(files: dict[str, bytes]) -> dict[str, bytes]:
        content = bytearray(files[VECTORS])
        struct.pack_into(form, content, at, value)
        return resealed(files | {VECTORS: bytes(content)})

    return change


def _another_structure(files: dict[str, bytes]) -> dict[str, bytes]:
    vectors = faiss.deserialize_index(np.frombuffer(files[VECTORS], np.uint8)).reconstruct_n(0, SIZE)
    index = faiss.index_factory(DIMENSIONS, "SQ8", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    return resealed(files | {VECTORS: faiss.serialize_index(index).tobytes()})


def _described(change: Callable[[dict[str, object]], object]) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    def changed(files: dict[str, bytes]) -> dict[str, bytes]:
        described = json.loads(files[DESCRIPTION])
        change(described)
        return files | {DESCRIPTION: json.dumps(described).encode()}

    return changed


def _value(**values: object) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return _described(lambda described: described.update(values))


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
    change: Callable[[dict[str, bytes]], dict[str, bytes]], files: dict[str, bytes], tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=r"^The index .* is damaged \(.*\); make it again\.$"):
        ImageIndex.load(written(tmp_path / "index", change(files)), Model())
