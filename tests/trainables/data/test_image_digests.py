"""Digests identify classes by the content of their images only."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainables.data.sets.folders import Folder
from trainables.data.store.build import build_store
from trainables.data.store.contents import content_digest, digests_by_class, fingerprints, named_digest, read_contents

Digests = dict[str, list[str]]
Digested = Callable[..., Digests]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write three classes of four images."""
    random = np.random.default_rng(0)
    for name in "abc":
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(4):
            pixels = random.integers(0, 256, (20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{index}.png")
    return tmp_path / "images"


@pytest.fixture
def digested(root: Path, tmp_path: Path) -> Digested:
    def digest(names: str = "abc", short_side: int = 16) -> Digests:
        dataset = Folder(root=root)
        path = build_store(dataset, tuple(names), short_side=short_side, cache=tmp_path / "cache", workers=2)
        return digests_by_class(read_contents(path))

    return digest


def test_digests_ignore_scaling_names_and_formats(digested: Digested, root: Path) -> None:
    before = digested()
    assert digested(short_side=8) == before
    (root / "b").rename(root / "z")
    image = root / "a" / "0.png"
    Image.open(image).save(root / "a" / "9.bmp")
    image.unlink()
    after = digested("acz")
    assert content_digest(after) == content_digest(before)
    assert fingerprints(after) == fingerprints(before)
    assert named_digest(after) != named_digest(before)


def test_one_pixel_and_one_image_in_another_class_are_seen(digested: Digested, root: Path) -> None:
    before = digested()
    (root / "a" / "0.png").rename(root / "b" / "9.png")
    moved = digested()
    assert content_digest(moved) != content_digest(before)
    pixels = np.array(Image.open(root / "c" / "0.png"))
    pixels[3, 5, 1] ^= 1
    Image.fromarray(pixels).save(root / "c" / "0.png")
    assert len({content_digest(found) for found in (before, moved, digested())}) == 3


def test_part_of_a_fingerprint_survives_added_and_removed_images(digested: Digested, root: Path) -> None:
    (before,) = fingerprints(digested("a"))
    (root / "a" / "0.png").unlink()
    Image.new("RGB", (20, 30), "red").save(root / "a" / "new.png")
    (after,) = fingerprints(digested("a"))
    assert before != after
    assert len(set(before) & set(after)) == 3
