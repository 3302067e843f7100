"""Properties of every data set of the table, then of each."""

import dataclasses
import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.refusals import sentences_of
from support.trees import make_tree
from torchvision.datasets import ImageFolder

from spaces.contract.check_data import DatasetContract
from spaces.contract.check_part import outcomes
from trainables.data import DATASETS, Dataset
from trainables.data.dataset import similar_names
from trainables.inference.given_images import found_images


def write_images(root: Path, classes: dict[str, int]) -> Path:
    """Write one sub-folder per class, with the given number of small images."""
    random = np.random.default_rng(0)
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for index, pixels in enumerate(random.integers(0, 256, (count, 10, 12, 3), dtype=np.uint8)):
            Image.fromarray(pixels).save(root / name / f"{index}.png")
    return root


def small(name: str, root: Path) -> Dataset:
    if name == "glyphs":
        return DATASETS[name](num_classes=8, images_per_class=6)
    if name == "folder":
        return DATASETS[name](root=write_images(root / name, {"b": 2, "a": 3, "C": 4}))
    if name == "manifest":
        images = write_images(root, {"b": 2, "a": 3, "C": 4}).rglob("*.png")
        rows = [f"{path},{path.parent.name},{path.stem},{('query', 'gallery')[int(path.stem) % 2]}" for path in images]
        (root / "x.csv").write_text("\n".join(["path,class,camera,part", *rows]))
        return DATASETS[name](file=root / "x.csv", ignore_same_camera=True)
    if name == "features":
        np.savez(root / "x.npz", embeddings=np.eye(6), labels=list("aabbcc"))
        return DATASETS[name](file=root / "x.npz")
    return DATASETS[name](root=make_tree(name, root / name), subset=True)


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set(name: str, tmp_path: Path) -> None:
    dataset = small(name, tmp_path)
    assert [outcome for outcome in outcomes(DatasetContract, dataset) if not outcome.ok] == []
    assert all(field.metadata["about"] for field in dataclasses.fields(dataset))
    assert dataset.summary
    assert dataset.publisher
    assert dataset.layout
    assert str(tmp_path) not in dataset.identity()


def test_folder_reads_what_torchvisions_reads(tmp_path: Path) -> None:
    root = write_images(tmp_path, {"b": 2, "a": 3, "C": 11, "10": 2, "9": 2})
    (root / "a" / "deeper").mkdir()
    (root / "a" / "0.png").rename(root / "a" / "deeper" / "0.PNG")
    (root / "a" / "notes.txt").write_text("not an image")
    (root / "readme.md").write_text("not a class")
    dataset, theirs = DATASETS["folder"](root=root), ImageFolder(str(root))
    assert list(dataset.classes()) == theirs.classes
    ours = [str(root / key) for keys in dataset.classes().values() for key in keys]
    assert sorted(ours) == sorted(path for path, _ in theirs.samples)
    assert np.array_equal(dataset.read("a/deeper/0.PNG"), np.asarray(theirs.loader(str(root / "a/deeper/0.PNG"))))


def test_folder_ignores_hidden_and_follows_links(tmp_path: Path) -> None:
    root = write_images(tmp_path / "root", {"a": 2, ".hidden": 1})
    (root / "a" / "._0.png").write_bytes(b"a resource fork")
    elsewhere = write_images(tmp_path / "elsewhere", {"x": 3})
    (root / "linked").symlink_to(elsewhere / "x")
    classes = DATASETS["folder"](root=str(root)).classes()
    assert classes == {"a": ("a/0.png", "a/1.png"), "linked": ("linked/0.png", "linked/1.png", "linked/2.png")}


@pytest.mark.parametrize("name", ["@eaDir", "$RECYCLE.BIN", "lost+found", "~snapshot", ".any"])
@pytest.mark.parametrize("below", ["", "a/deeper/"])
def test_folders_of_systems_are_no_classes_and_have_no_images(tmp_path: Path, name: str, below: str) -> None:
    root = write_images(tmp_path, {"a": 2, "b": 1, f"{below}{name}": 2, f"{below}{name}/b": 1})
    dataset = DATASETS["folder"](root=root)
    assert dataset.classes() == {"a": ("a/0.png", "a/1.png"), "b": ("b/0.png",)}
    assert dataset.left_out() == f"Left out in {str(root)!r}: 1 folder of systems ({name} 1)."
    assert len(found_images([root])) == 3


def test_folder_takes_every_suffix_and_counts_the_rest(tmp_path: Path) -> None:
    root = write_images(tmp_path, {"a": 1})
    dataset = DATASETS["folder"](root=root)
    assert dataset.left_out() is None
    forms = {"jfif": "JPEG", "JPE": "JPEG", "pbm": "PPM", "png": "GIF", "PNG ": "PNG", "jpg.": "JPEG", "webp .": "WEBP"}
    for suffix, form in forms.items():
        Image.new("RGB", (4, 4), "white").save(root / "a" / f"x.{suffix}", form)
        assert dataset.read(f"a/x.{suffix}").shape == (4, 4, 3)
    assert len(dataset.classes()["a"]) == 8
    for path in ("a/x.txt", "a/y.TXT", "a/notes", "read.me", "beside.png", ".DS_Store", "a/._0.png"):
        (root / path).touch()
    assert len(dataset.classes()["a"]) == 8
    assert dataset.left_out() == (
        f"Left out in {str(root)!r}: 4 files without the suffix of an image (.me 1, .txt 2, none 1); 1 hidden image; "
        "1 image beside the folders of classes."
    )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["shoe", "Shoe", "bag"], r"1 group .*: 'shoe', 'Shoe'\. If"),
        (["1", "01", "001", "10"], "'1', '01', '001'"),
        (["item 7", "item 07", "item 17"], "'item 7', 'item 07'"),
        (["bag ", "bag", "a  b", "a b"], "2 groups .*'bag ', 'bag'; 'a  b', 'a b'"),
        (["caf\u00e9", "cafe\u0301"], r"'caf\\xe9', 'cafe\\u0301'"),
        (["a", "b", "0", "10", "100"], None),
    ],
)
def test_names_that_differ_in_their_writing_only(names: list[str], words: str | None) -> None:
    found = similar_names(names)
    assert found is None if words is None else found and re.search(words, found)


def test_folder_names_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, words in (("nowhere", "does not exist"), ("file", "is not a folder"), ("empty", "no sub-folder")):
        (sentence,) = sentences_of(DATASETS["folder"], root=tmp_path / name)
        assert words in sentence
        assert str(tmp_path / name) in sentence
    assert "root is missing" in sentences_of(DATASETS["folder"])[0]
    root = write_images(tmp_path / "root", {"a": 1, "b": 0, "c": 0})
    (root / "b" / "picture.txt").touch()
    Path(os.fsdecode(os.fsencode(root / "a") + b"/\xff.png")).touch()
    empty, odd = sentences_of(DATASETS["folder"](root=root).classes)
    assert re.match("2 of the 3 .*b, c", empty)
    assert "1 file name that cannot be read as UTF-8" in odd
    assert odd.encode()


def test_glyphs_are_the_same_on_every_machine() -> None:
    dataset = DATASETS["glyphs"]()
    pixels = b"".join(
        dataset.read(f"glyph-{label:03d}/{image:03d}").tobytes() for label in (0, 47, 95) for image in (0, 23)
    )
    assert hashlib.sha256(pixels).hexdigest() == "079d8ba3a2c0eab62f9f278840a2003bb4d5ee03c17869e913051fdb1bc11966"

    for change in ({"seed": 1}, {"size": 41}):
        other = dataclasses.replace(dataset, **change)
        assert other.identity() != dataset.identity()
        assert not np.array_equal(other.read("glyph-000/000"), dataset.read("glyph-000/000"))
