"""Changed index folders: each is refused in a sentence, or answers queries with results of the right shape."""

import hashlib
import json
import random
import re
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from trainables.inference.images import ImageLike
from trainables.inference.index.description import DESCRIPTION, PATHS, VECTORS, IndexKind
from trainables.inference.index.image_index import ImageIndex
from trainables.mistakes import Mistakes

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
def files(vectors: NDArray[np.float32], tmp_path_factory: pytest.TempPathFactory) -> dict[IndexKind, dict[str, bytes]]:
    """Return the files of an index of each kind."""
    folder = tmp_path_factory.mktemp("indexes")
    for kind in IndexKind:
        ImageIndex.of(vectors, [f"{row}.png" for row in range(SIZE)], Model(), kind=kind).save(folder / kind)
    return {kind: {path.name: path.read_bytes() for path in (folder / kind).iterdir()} for kind in IndexKind}


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


def bit(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def header(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(120)
    return content[:place] + b"\xff" + content[place + 1 :]


def digit(content: bytes, draw: random.Random) -> bytes:
    place = draw.choice([found.start() for found in re.finditer(rb"[0-9]", content)])
    return content[:place] + bytes([draw.choice([one for one in b"0123456789" if one != content[place]])]) + content[
        place + 1 :
    ]  # fmt: skip


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "a bit": bit,
    "a byte of the header": header,
    "a digit": digit,
    "cut": lambda content, draw: content[: draw.randrange(len(content))],
    "emptied": lambda content, draw: b"",
    "longer": lambda content, draw: content + b"0",
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("file", [VECTORS, PATHS, DESCRIPTION])
def test_every_mutation_is_a_sentence_or_has_results(
    file: str,
    mutation: str,
    files: dict[IndexKind, dict[str, bytes]],
    vectors: NDArray[np.float32],
    tmp_path: Path,
) -> None:
    draw = random.Random(f"{file} {mutation}")
    for kind in IndexKind:
        for _ in range(5):
            changed = files[kind] | {file: MUTATIONS[mutation](files[kind][file], draw)}
            try:
                index = ImageIndex.load(written(tmp_path / "index", changed), Model())
            except Mistakes as mistakes:
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


def _other_rows(files: dict[str, bytes]) -> dict[str, bytes]:
    index = faiss.deserialize_index(np.frombuffer(files[VECTORS], np.uint8))
    list_of_first = next(number for number in range(index.nlist) if index.invlists.list_size(number))
    faiss.rev_swig_ptr(index.invlists.get_ids(list_of_first), 1)[0] = SIZE
    return resealed(files | {VECTORS: faiss.serialize_index(index).tobytes()})


def _another_similarity(files: dict[str, bytes]) -> dict[str, bytes]:
    vectors = faiss.deserialize_index(np.frombuffer(files[VECTORS], np.uint8)).reconstruct_n(0, SIZE)
    index = faiss.IndexHNSWFlat(DIMENSIONS, 32, faiss.METRIC_L2)
    index.add(vectors)
    return resealed(files | {VECTORS: faiss.serialize_index(index).tobytes()})


def _another_storage(files: dict[str, bytes]) -> dict[str, bytes]:
    vectors = faiss.deserialize_index(np.frombuffer(files[VECTORS], np.uint8)).reconstruct_n(0, SIZE)
    index = faiss.IndexIVFFlat(faiss.IndexHNSWFlat(DIMENSIONS, 4, 0), DIMENSIONS, 4, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    return resealed(files | {VECTORS: faiss.serialize_index(index).tobytes()})


def _described(change: Callable[[dict[str, object]], object]) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    def changed(files: dict[str, bytes]) -> dict[str, bytes]:
        described = json.loads(files[DESCRIPTION])
        change(described)
        return files | {DESCRIPTION: json.dumps(described).encode()}

    return changed


def _recall(**values: object) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return _described(lambda described: described["recall"].update(values))  # type: ignore[attr-defined]


def _value(**values: object) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return _described(lambda described: described.update(values))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (IndexKind.EXACT, _claims(37, "<Q", 2**36)),  # bytes that would be allocated
        (IndexKind.HNSW, _claims(37, "<Q", 2**36)),
        (IndexKind.IVF, _claims(37, "<Q", 2**36)),  # lists that would be made
        (IndexKind.IVF, _other_rows),
        (IndexKind.HNSW, _another_similarity),
        (IndexKind.IVF, _another_storage),
        (IndexKind.IVF, _recall(value=0)),
        (IndexKind.IVF, _recall(value=-3)),
        (IndexKind.HNSW, _recall(value=10**9)),
        (IndexKind.HNSW, _recall(value="10")),
        (IndexKind.IVF, _value(kind="exact")),
        (IndexKind.IVF, _value(recall=None)),
        (IndexKind.EXACT, _value(kind="hnsw")),
        (IndexKind.EXACT, _value(model=["/etc"])),
        (IndexKind.EXACT, _value(images=True)),
        (IndexKind.EXACT, _value(dimensions=-8)),
        (IndexKind.EXACT, _value(sha256={})),
    ],
)
def test_what_contradicts_itself_is_damaged(
    kind: IndexKind,
    change: Callable[[dict[str, bytes]], dict[str, bytes]],
    files: dict[IndexKind, dict[str, bytes]],
    tmp_path: Path,
) -> None:
    with pytest.raises(Mistakes, match=r"^The index .* is damaged \(.*\); make it again\.$"):
        ImageIndex.load(written(tmp_path / "index", change(files[kind])), Model())


def test_reading_restores_the_limits_of_faiss(files: dict[IndexKind, dict[str, bytes]], tmp_path: Path) -> None:
    def limits() -> tuple[int, int]:
        return faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()

    before = limits()
    ImageIndex.load(written(tmp_path / "index", files[IndexKind.IVF]), Model())
    assert limits() == before
