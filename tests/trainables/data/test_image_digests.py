"""Digests identify classes by the content of their images only."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.image_stores import build_store
from support.small_search import draw_folder

from trainables.data.sets.folders import Folder
from trainables.data.store.contents import StoreContents, digests_by_class, read_contents
from trainables.files import json_digest

Digested = Callable[..., StoreContents]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return draw_folder(tmp_path / "images", classes=3, images=4)


@pytest.fixture
def digested(root: Path, tmp_path: Path) -> Digested:
    def digest(short_side: int = 16) -> StoreContents:
        dataset = Folder(root=root)
        path = build_store(dataset, list(dataset.classes()), short_side=short_side, cache=tmp_path / "cache")
        return read_contents(path)

    return digest


def test_digests_and_looks_ignore_scaling_names_and_formats(digested: Digested, root: Path) -> None:
    before = digested()
    smaller = digested(short_side=8)
    assert (smaller.image_digests, smaller.image_looks) == (before.image_digests, before.image_looks)
    (root / "class-01").rename(root / "z")
    image = root / "class-00" / "00.png"
    Image.open(image).save(root / "class-00" / "09.bmp")
    image.unlink()
    after = digested()
    assert sorted(digests_by_class(after).values()) == sorted(digests_by_class(before).values())
    assert sorted(after.image_looks) == sorted(before.image_looks)
    assert json_digest(digests_by_class(after)) != json_digest(digests_by_class(before))


def test_one_pixel_changes_the_digest_and_not_the_look(digested: Digested, root: Path) -> None:
    before = digested()
    pixels = np.array(Image.open(root / "class-02" / "00.png"))
    pixels[3, 5, 1] ^= 1
    Image.fromarray(pixels).save(root / "class-02" / "00.png")
    after = digested()
    assert len({*before.image_digests} & {*after.image_digests}) == 11
    assert before.image_looks == after.image_looks
    assert len({*before.image_looks}) == 12


@pytest.mark.skipif("HOLDOUT_TEST_IMAGES" not in os.environ, reason="needs photographs")
@pytest.mark.parametrize("name", ["omniglot", "grocery"])
def test_images_of_different_classes_look_different(name: str, tmp_path: Path) -> None:
    dataset = Folder(root=Path(os.environ["HOLDOUT_TEST_IMAGES"]) / name / "images")
    names = sorted(dataset.classes())[::20]
    contents = read_contents(build_store(dataset, names, short_side=16, cache=tmp_path / "cache"))
    classes_of: dict[str, set[int]] = {}
    for label, look in zip(contents.labels_N.tolist(), contents.image_looks, strict=True):
        classes_of.setdefault(look, set()).add(label)
    assert len(names) > 4
    assert all(len(classes) == 1 for classes in classes_of.values())
