"""The image store: content, concurrent builds, killed builders, full disks, digests, and items of any kind in it."""

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image
from support.image_stores import build_store
from support.slow_build import GLYPHS, slow_build
from support.small_disk import small_files
from support.small_search import draw_folder
from support.small_training import drawn_images

from trainables.common.errors import InvalidInput
from trainables.common.files import json_digest
from trainables.data import DATASETS, Dataset
from trainables.data.sets.folders import Folder
from trainables.data.sets.glyphs import Glyphs
from trainables.data.store.contents import (
    StoreContents,
    digests_by_class,
    item_bytes,
    item_digest,
    item_of,
    read_contents,
)
from trainables.data.store.view import ResidentStore, Store, StoreView, training_half

SIZES = {"b": [(30, 40), (64, 20), (10, 12)], "a": [(33, 33), (21, 80)], "c": [(50, 50), (7, 90), (40, 30), (16, 16)]}


@pytest.fixture
def folder(tmp_path: Path) -> Dataset:
    random = np.random.default_rng(0)
    for name, sizes in SIZES.items():
        (tmp_path / "images" / name).mkdir(parents=True)
        for index, size in enumerate(sizes):
            pixels = random.integers(0, 256, (*size, 3) if index else size, dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{index}.png")
    return DATASETS["folder"](root=tmp_path / "images")


def build(dataset: Dataset, cache: Path, class_names: tuple[str, ...] = ("a", "b", "c"), short_side: int = 16) -> Store:
    return Store(build_store(dataset, class_names, short_side=short_side, cache=cache))


def built(cache: Path) -> Store:
    """Build the store of the drawn images, or wait until another process has; the last image is checked."""
    store = build(GLYPHS, cache, tuple(GLYPHS.classes()), short_side=40)
    assert np.array_equal(image_of(store, 47), GLYPHS.read("glyph-003/011"))
    assert not list(cache.glob("*.draft"))
    return store


def image_of(images: Store | StoreView, index: int) -> np.ndarray:
    at = torch.tensor([index])
    sizes = images.store.sizes_N2[images.rows_N[at]] if isinstance(images, StoreView) else images.sizes_N2[at]
    windows = torch.cat([torch.zeros_like(sizes), sizes], dim=1)
    return images.gather(at, windows)[0].permute(1, 0, 2).numpy()


def expected_pixels(path: Path, short_side: int) -> np.ndarray:
    """Return the image as read by Pillow, scaled down to ``short_side``."""
    image = Image.open(path).convert("RGB")
    short = min(image.size)
    if short > short_side:
        image = image.resize([side * short_side // short for side in image.size], Image.Resampling.BILINEAR)
    return np.asarray(image)


def test_the_store_holds_every_image_scaled_down(folder: Dataset, tmp_path: Path) -> None:
    store = build(folder, tmp_path / "cache")
    assert store.class_names == ("a", "b", "c")
    assert store.image_keys == tuple(f"{name}/{index}.png" for name in "abc" for index in range(len(SIZES[name])))
    assert store.labels_N.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert store.labels_N.dtype == torch.int64
    assert len(store) == 9
    for row, key in enumerate(store.image_keys):
        expected = expected_pixels(tmp_path / "images" / key, 16)
        assert store.sizes_N2[row].tolist() == list(expected.shape[:2])
        assert np.array_equal(image_of(store, row), expected)


@pytest.fixture(params=["mapped", "resident"])
def wide_store(request: pytest.FixtureRequest, folder: Dataset, tmp_path: Path) -> Store:
    """Return a memory-mapped store, and a resident one as on a GPU (here on the CPU)."""
    store = build(folder, tmp_path / "cache", short_side=256)
    return store if request.param == "mapped" else ResidentStore(store.path, torch.device("cpu"))


def test_gather_reads_a_window_of_each_image(wide_store: Store) -> None:
    rows = [3, 6, 3, 8]
    windows = []
    for row in rows:
        height, width = wide_store.sizes_N2[row].tolist()
        windows.append([row % height // 2, width // 3, height - row % height // 2, width - width // 3])
    pixels = wide_store.gather(torch.tensor(rows), torch.tensor(windows))
    assert pixels.dtype == torch.uint8
    assert pixels.shape == (4, max(window[3] for window in windows), max(window[2] for window in windows), 3)
    for row, (top, left, tall, wide), found in zip(rows, windows, pixels, strict=True):
        expected = image_of(wide_store, row)[top : top + tall, left : left + wide]
        assert np.array_equal(found[:wide, :tall].permute(1, 0, 2).numpy(), expected)


def test_a_view_relabels_its_classes_in_the_given_order(folder: Dataset, tmp_path: Path) -> None:
    store = build(folder, tmp_path / "cache")
    view = store.subset(("c", "a"))
    assert view.class_names == ("c", "a")
    assert len(view) == 6
    for index, key in enumerate(view.image_keys):
        assert view.class_names[view.labels_N[index]] == key[0]
        assert np.array_equal(image_of(view, index), image_of(store, store.image_keys.index(key)))
        assert torch.equal(view.sizes(torch.tensor(index)), store.sizes_N2[store.image_keys.index(key)])
    with pytest.raises(InvalidInput, match="no class d, e"):
        store.subset(("a", "d", "e"))


def test_a_store_is_found_again_by_what_it_holds(folder: Dataset, tmp_path: Path) -> None:
    first = build(folder, tmp_path / "cache")
    assert Store(first.path).image_keys == first.image_keys
    before = (first.path / "pixels.bin").stat().st_mtime_ns
    assert build(folder, tmp_path / "cache", ("c", "b", "a")).path == first.path, "in any order of classes"
    assert (first.path / "pixels.bin").stat().st_mtime_ns == before
    paths = {first.path, build(folder, tmp_path / "cache", short_side=17).path}
    for path in (tmp_path / "images" / "c").iterdir():
        path.write_bytes(b"garbage")  # no image of a class that is not asked for is read
    paths.add(build(folder, tmp_path / "cache", ("a", "b")).path)
    os.utime(tmp_path / "images" / "a" / "0.png", ns=(0, 0))
    paths.add(build(folder, tmp_path / "cache", ("a", "b")).path)
    assert len(paths) == 4


def test_stores_that_cannot_be_written_or_read_are_named(folder: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"cannot be written below .*Not a directory.*dataset\.cache"):
        build(folder, tmp_path / "file" / "cache")
    with pytest.raises(InvalidInput, match="no readable image store"):
        Store(tmp_path / "nowhere")
    path = build(folder, tmp_path / "cache").path
    os.truncate(path / "pixels.bin", 100)
    with pytest.raises(InvalidInput, match="is damaged"):
        Store(path)
    with small_files(100_000), pytest.raises(InvalidInput, match=r"cannot be written below .*File too large"):
        build(GLYPHS, tmp_path, tuple(GLYPHS.classes()), short_side=40)
    assert not list(tmp_path.glob("*.draft"))


def test_one_of_two_concurrent_processes_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process, keys = slow_build(tmp_path, read=1)
    monkeypatch.setattr(Glyphs, "read", None)  # the waiting process must not read
    others: list[str] = []
    go_on = threading.Timer(0.2, lambda: others.extend(keys))
    go_on.start()
    store = build(GLYPHS, tmp_path, tuple(GLYPHS.classes()), short_side=40)
    go_on.join()
    process.join()
    assert (process.exitcode, len(others), len(store)) == (0, 47, 48)
    assert {path.suffix for path in tmp_path.iterdir()} <= {"", ".lock", ".used"}


def test_remains_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    process, _ = slow_build(tmp_path, read=40)  # more than are decoded ahead of writing
    process.kill()
    process.join()
    (draft,) = tmp_path.glob("*.draft")
    assert not draft.with_suffix("").exists()
    assert built(tmp_path).path == draft.with_suffix("")


def test_a_waiting_process_builds_if_the_builder_is_killed(tmp_path: Path) -> None:
    first, _ = slow_build(tmp_path, read=1)
    second, keys = slow_build(tmp_path, read=0)
    time.sleep(0.2)
    first.kill()
    first.join()
    assert len([*keys]) == 48
    second.join()
    assert second.exitcode == 0
    built(tmp_path)


@pytest.mark.parametrize("seed", [0, 5])
def test_the_training_half_is_of_every_class_the_half_with_the_lowest_hashes(tmp_path: Path, seed: int) -> None:
    images = drawn_images(tmp_path)
    view = images.open().subset(images.class_names[1:5])
    half = training_half(view, seed)
    expected: set[str] = set()
    for name in view.class_names:
        keys = images.dataset.classes()[name]
        in_order = sorted(keys, key=lambda key: hashlib.sha256(f"{seed}:{key}".encode()).hexdigest())
        expected |= {key for rank, key in enumerate(in_order) if 2 * rank < len(keys)}
    assert set(half.image_keys) == expected
    label_of = dict(zip(view.image_keys, view.labels_N.tolist(), strict=True))
    assert half.labels_N.tolist() == [label_of[key] for key in half.image_keys]


def digested(root: Path, short_side: int = 16) -> StoreContents:
    dataset = Folder(root=root)
    return read_contents(build_store(dataset, [*dataset.classes()], short_side=short_side, cache=root.parent / "cache"))


def test_digests_ignore_scaling_names_and_formats(tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", classes=3, images=4)
    before = digested(root)
    assert digested(root, short_side=8).image_digests == before.image_digests
    (root / "class-01").rename(root / "z")
    image = root / "class-00" / "00.png"
    Image.open(image).save(root / "class-00" / "09.bmp")
    image.unlink()
    after = digested(root)
    assert sorted(digests_by_class(after).values()) == sorted(digests_by_class(before).values())
    assert json_digest(digests_by_class(after)) != json_digest(digests_by_class(before))
    pixels = np.array(Image.open(root / "class-02" / "00.png"))
    pixels[3, 5, 1] ^= 1
    Image.fromarray(pixels).save(root / "class-02" / "00.png")
    assert len({*before.image_digests} & {*digested(root).image_digests}) == 11, "one pixel changes one digest"


# Items of any kind as bytes, and back.


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
ITEMS = st.recursive(
    PLAIN | st.text(alphabet="ab/").map(Path),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=20)
@given(ITEMS)
def test_an_item_comes_back_as_it_was(item: Any) -> None:
    found = item_of(item_bytes(item))
    assert found == item
    assert type(found) is type(item)


@pytest.mark.parametrize("kind", ["bool", "uint8", "int64", "float32", "complex64", ">i2"])
def test_arrays_come_back_and_can_be_written(kind: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(kind)
    found = item_of(item_bytes({"a": array[:, ::-1], "b": [array.T, np.float32(2)]}))
    np.testing.assert_array_equal(found["a"], array[:, ::-1])
    np.testing.assert_array_equal(found["b"][0], array.T)
    assert found["a"].dtype == array.dtype
    assert found["b"][1] == 2.0
    found["a"][:] = 0


@pytest.mark.parametrize("item", [{1, 2}, object(), {1: "a"}, np.array(["a"]), [lambda: 0]])
def test_another_kind_is_refused(item: Any) -> None:
    with pytest.raises(ValueError, match="an item is a text, bytes, a number"):
        item_bytes(item)


def test_digests_are_those_of_the_content(tmp_path: Path) -> None:
    for name, text in {"a": "the same", "b": "the same", "c": "another"}.items():
        (tmp_path / name).write_text(text)
    a, b, c = ({"audio": tmp_path / name} for name in "abc")
    assert item_digest(a) == item_digest(b)
    arrays = (np.array([1]), np.array([[1]]), np.array([2]))
    items: list[Any] = ["1", 1, 1.5, True, None, b"1", [1], (1,), {"a": 1}, *arrays, b, c]
    assert len({item_digest(item) for item in items}) == len(items)
