"""Files of embeddings as data: their formats, their mistakes, and the store made of them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pyarrow.parquet import write_table
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors
from support.image_stores import build_store
from support.refusals import sentences_of

from trainables.data.sets.features import FeatureFile, read_features
from trainables.data.store.contents import read_contents
from trainables.data.store.view import FeatureView, Store

CLASSES, EACH, FEATURES = 6, 4, 10
GROUPS = [f"user {row % 5}" for row in range(CLASSES * EACH)]


def arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    found = {
        "embeddings": rng.normal(size=(CLASSES * EACH, FEATURES)).astype(np.float32),
        "labels": [f"class {row % CLASSES}" for row in range(CLASSES * EACH)],
        "ids": [f"item {row}" for row in range(CLASSES * EACH)],
    }
    return {name: entry for name, entry in {**found, **changes}.items() if entry is not None}


def write_npz(path: Path, content: dict[str, Any]) -> None:
    np.savez(path, **{name: np.asarray(entry) for name, entry in content.items()})


def write_parquet(path: Path, content: dict[str, Any]) -> None:
    write_table(pyarrow.table({**content, "embeddings": list(content["embeddings"])}), path)


def write_safetensors(path: Path, content: dict[str, Any]) -> None:
    lists = {name: json.dumps(entry) for name, entry in content.items() if isinstance(entry, list)}
    save_file({name: np.asarray(entry) for name, entry in content.items() if name not in lists}, path, lists)


WRITERS: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    ".npz": write_npz,
    ".parquet": write_parquet,
    ".safetensors": write_safetensors,
}


def store_of(dataset: FeatureFile, cache: Path) -> Path:
    return build_store(dataset, [*dataset.classes()], short_side=256, cache=cache)


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_holds_the_same(suffix: str, tmp_path: Path) -> None:
    content, file = arrays(groups=GROUPS), tmp_path / f"some{suffix}"
    WRITERS[suffix](file, content)
    found = read_features(file)
    np.testing.assert_array_equal(found.embeddings_NF, content["embeddings"])
    assert found.embeddings_NF.dtype == np.float32
    assert (found.labels, found.ids, found.paths) == (tuple(content["labels"]), tuple(content["ids"]), None)
    assert FeatureFile(file=file).groups() == dict(zip(content["ids"], GROUPS, strict=True))

    write_npz(tmp_path / "other.npz", content)
    stores = [store_of(FeatureFile(file=str(path)), tmp_path / "cache") for path in (file, tmp_path / "other.npz")]
    assert stores[0] == stores[1], "the store is named by the content"


PARTS = ["train"] * 12 + ["query", "gallery", "gallery"] * 2 + ["distractor"] * 6
OF_PARTS = {"labels": [f"{'ab'[row % 2]}" for row in range(12)] + ["c"] * 3 + ["d"] * 3 + ["noise"] * 6, "parts": PARTS}


def test_every_format_holds_the_parts_of_a_benchmark(tmp_path: Path) -> None:
    content = arrays(**OF_PARTS)
    for suffix, write in WRITERS.items():
        write(path := tmp_path / f"x{suffix}", content)
        dataset = FeatureFile(file=path)
        assert dataset.published_split() == (("a", "b"), ("c", "d", "noise"))
        expected = {
            key: {"distractor": "gallery"}.get(part, part)
            for key, part in zip(content["ids"], PARTS, strict=True)
            if part != "train"
        }
        assert dataset.parts() == expected


def test_classes_are_in_the_order_of_their_names_or_sizes(tmp_path: Path) -> None:
    rows, long = np.eye(4, dtype=np.float32), ["1" * 5_000, "2" * 5_000]
    for labels, expected in (
        ([10, 9, -1, 9], ["-1", "9", "10"]),
        (["b", "10", "9", "b"], ["10", "9", "b"]),
        ([long[1], "10", *long], ["10", *long]),
    ):
        write_npz(tmp_path / "x.npz", {"embeddings": rows, "labels": labels})
        dataset = FeatureFile(file=tmp_path / "x.npz")
        assert list(dataset.classes()) == expected
        np.testing.assert_array_equal(dataset.read("row 2"), rows[2])


def test_a_store_gives_the_rows_of_the_file(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", content := arrays())
    store = Store(store_of(FeatureFile(file=tmp_path / "x.npz"), tmp_path / "cache"))
    assert store.features == FEATURES
    view = store.subset(["class 4", "class 1"])
    assert isinstance(view, FeatureView)
    assert (len(view), view.labels_N.tolist()) == (2 * EACH, sorted(view.labels_N.tolist())[::-1])
    everything = view.features(torch.arange(len(view)))
    rows = [int(key.removeprefix("item ")) for key in view.image_keys]
    np.testing.assert_array_equal(everything.numpy(), content["embeddings"][rows])
    assert [row % CLASSES for row in rows] == [[4, 1][label] for label in view.labels_N.tolist()]


def test_pictures_are_those_of_paths_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    for place in ("inside/a.png", "outside.png"):
        Image.new("RGB", (8, 8), "red").save(tmp_path / place)
    content = arrays(
        ids=None, paths=["a.png", "../outside.png", "none.png", *(f"x{row}" for row in range(CLASSES * EACH - 3))]
    )
    write_npz(tmp_path / "inside" / "x.npz", content)
    dataset = FeatureFile(file=tmp_path / "inside" / "x.npz")
    pictures = [dataset.picture(key) for key in ("a.png", "../outside.png", "none.png")]
    assert [None if picture is None else picture.shape for picture in pictures] == [(8, 8, 3), None, None]


def changed(row: int, value: float) -> NDArray[np.float32]:
    embeddings: NDArray[np.float32] = arrays()["embeddings"]
    embeddings[row] = value
    return embeddings


N = CLASSES * EACH
MISTAKES = [
    ({"embeddings": None}, "there are no embeddings; it has labels, ids."),
    ({"embeddings": changed(3, np.nan)}, "1 row of embeddings with numbers that are not finite (row 3)"),
    ({"embeddings": np.full((N, 2), 1e300)}, "24 rows of embeddings with numbers that are not finite (row 0, 1, 2, "),
    ({"embeddings": changed(7, 0)}, "1 row of embeddings with zeros only (row 7): a vector of zeros has no direction"),
    ({"embeddings": np.ones(N, np.float32)}, "embeddings must be numbers, items × features; they are float32 of 24."),
    ({"labels": ["a"] * (N - 1)}, "there are 24 embeddings and 23 labels; give one for each."),
    ({"labels": np.full(N, 0.5)}, "labels must be text or whole numbers; one is 0.5; write them as text."),
    ({"labels": np.array("a")}, "labels must be one text or whole number for each item; they are a single value."),
    ({"labels": ["a"] * (N - 1) + [""]}, "labels has 1 empty entry (row 23); fill them in, or remove these items."),
    ({"ids": ["one"] * 2 + [str(row) for row in range(N - 2)]}, "1 entry of ids more than once: one."),
    *((OF_PARTS | {"parts": parts}, sentence) for parts, sentence in (
        ([{"query": "probe"}.get(part, part) for part in PARTS], "2 rows with the unknown part probe"),
        (["gallery", *PARTS[1:]], "1 class with rows of part train and of another: a"),
        ([*PARTS[:13], "distractor", *PARTS[14:]], "1 class with rows of part distractor and of another"),
        (["train"] * 15 + ["gallery"] * 9, "no row has the part query"),
        (["gallery"] * 12 + PARTS[12:], "the part distractor needs the part train too"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "sentence"), MISTAKES, ids=[sentence[:50] for _, sentence in MISTAKES])
def test_a_mistake_is_a_sentence(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    write_npz(path := tmp_path / "x.npz", arrays(**changes))
    (said,) = sentences_of(FeatureFile(file=path).classes)
    assert sentence in said
    assert said.startswith(f"dataset.file is {str(path)!r}: ")


@pytest.mark.parametrize(("dtype", "kind"), [(torch.bfloat16, "BF16"), (torch.float8_e4m3fn, "F8_E4M3")])
def test_embeddings_of_few_bits_are_read_and_labels_are_not(dtype: torch.dtype, kind: str, tmp_path: Path) -> None:
    tensor, path = torch.tensor(arrays()["embeddings"]).to(dtype), tmp_path / "x.safetensors"
    save_tensors({"embeddings": tensor}, path)
    np.testing.assert_array_equal(read_features(path).embeddings_NF, tensor.float())
    save_tensors({"embeddings": tensor, "labels": torch.arange(N).to(dtype)}, path)
    (said,) = sentences_of(read_features, path)
    assert said == f"{path}: labels are {kind}, which rounds whole numbers; write them as integers or text."


LISTS = [
    ("c1,c2", "labels in the metadata must be a list in JSON; it is c1,c2; use json.dumps."),
    ('[null, "", "a"]', "labels has 2 empty entries (row 0, 1); fill them in"),
]


@pytest.mark.parametrize(("text", "sentence"), LISTS)
def test_a_list_in_metadata_is_read_or_its_cause_is_said(text: str, sentence: str, tmp_path: Path) -> None:
    save_file({"embeddings": np.eye(3, dtype=np.float32)}, tmp_path / "x.safetensors", {"labels": text})
    (said,) = sentences_of(read_features, tmp_path / "x.safetensors")
    assert said.startswith(f"{tmp_path / 'x.safetensors'}: {sentence}")


def test_all_mistakes_are_told_at_once_and_labels_are_needed_for_a_search(tmp_path: Path) -> None:
    write_npz(path := tmp_path / "x.npz", arrays(embeddings=changed(0, 0), labels=["a"], ids=["b"] * N))
    assert len(sentences_of(FeatureFile(file=path).classes)) == 3
    write_npz(path, arrays(labels=None))
    assert read_features(path).labels is None
    (said,) = sentences_of(FeatureFile(file=path).classes)
    assert "which has no labels; give a class for each embedding" in said


def test_where_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a")
    (tmp_path / "x.npz").mkdir()
    for name, sentence in (
        ("x.csv", "the suffix sets the format and must be one of .npz, .parquet, .safetensors"),
        ("x.npz", "which is not a file"),
        ("y.npz", "which does not exist"),
    ):
        assert sentence in sentences_of(FeatureFile, file=tmp_path / name)[0]
    assert "dataset.file is missing" in sentences_of(FeatureFile)[0]
    np.save(tmp_path / "x.npy", np.eye(3))
    (said,) = sentences_of(read_features, (tmp_path / "x.npy").rename(tmp_path / "z.npz"))
    assert "(it is one array, as np.save writes it; name its arrays in np.savez)" in said


@pytest.mark.parametrize(("dtype", "digits"), [(np.float16, 11), (np.float32, 24), (np.float64, 53)])
@pytest.mark.parametrize("suffix", WRITERS)
def test_labels_that_their_type_rounds_are_refused(suffix: str, dtype: type, digits: int, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    for name in ("labels", "groups"):
        WRITERS[suffix](path, arrays(**{name: np.full(N, 2**digits - 1).astype(dtype)}))
        assert getattr(read_features(path), name) == (str(2**digits - 1),) * N
        WRITERS[suffix](path, arrays(**{name: -np.full(N, 2.0**digits).astype(dtype)}))
        (said,) = sentences_of(read_features, path)
        assert f"{name} are floats that round whole numbers from {2**digits:,} on, such as -{2**digits}, so" in said


def test_vectors_that_differ_in_the_sign_of_zeros_are_copies(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(4, FEATURES)).astype(np.float32)
    rows[2:, 3] = 0
    rows[3] = rows[2]
    rows[3, 3] = -0.0
    write_npz(tmp_path / "x.npz", {"embeddings": rows, "labels": ["a"] * 2 + ["b"] * 2})
    digests = read_contents(store_of(FeatureFile(file=tmp_path / "x.npz"), tmp_path / "cache")).image_digests
    plain = [hashlib.sha256(f"{FEATURES}".encode() + row.tobytes()).hexdigest()[:16] for row in rows[[0, 1, 2, 2]]]
    assert list(digests) == plain


def test_an_empty_row_or_number_of_embeddings_is_named(tmp_path: Path) -> None:
    fixed, lists = pyarrow.list_(pyarrow.float32(), 2), pyarrow.list_(pyarrow.float32())
    write_table(pyarrow.table({"embeddings": pyarrow.array([[1.0, 2.0], [3.0, 4.0]], fixed)}), tmp_path / "x.parquet")
    assert read_features(tmp_path / "x.parquet").embeddings_NF.tolist() == [[1, 2], [3, 4]]
    for kind, bad in ((fixed, None), (fixed, [1.0, None]), (lists, None), (lists, [None, 1.0])):
        table = pyarrow.table({"embeddings": pyarrow.array([[1.0, 2.0]] * 4 + [bad, [3.0, 4.0]], kind)})
        write_table(table, tmp_path / "x.parquet", row_group_size=2)
        (said,) = sentences_of(read_features, tmp_path / "x.parquet")
        assert said.endswith(": embeddings has 1 empty entry (row 4); fill them in, or remove these items.")
