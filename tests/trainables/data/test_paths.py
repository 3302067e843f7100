"""Paths in lists that are written differently from the disk: taken if they can mean one file only."""

import random
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st
from support.odd_input import NAMES, odd_list
from support.refusals import sentences_of
from support.small_search import draw_folder

from trainables.data.sets.folders import Folder
from trainables.data.sets.manifest import Manifest
from trainables.data.sets.paths import Folders, as_on_disk
from trainables.inference.images import found_images


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_path_that_can_mean_one_file_is_that_file(draw: random.Random) -> None:
    with TemporaryDirectory() as folder:
        file, classes = odd_list(Path(folder), draw)
        assert Manifest(file=file).classes() == classes


def test_a_path_that_may_mean_two_files_is_missing(tmp_path: Path) -> None:
    for name in ("a.png", "A.png"):
        (tmp_path / name).touch()
    assert Folders().meant(tmp_path, "a.png") == "a.png"
    assert Folders().meant(tmp_path, "a.PNG") is None
    (tmp_path / "list.csv").write_text("path,class\na.PNG,x\na.png,y\n")
    (said,) = sentences_of(lambda: Manifest(file=tmp_path / "list.csv").classes())
    assert "1 of the 2 images are missing" in said


def test_two_rows_of_one_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "list.csv").write_text("path,class\na.PNG,x\na.png,y\n")
    (said,) = sentences_of(lambda: Manifest(file=tmp_path / "list.csv").classes())
    assert "1 path more than once: a.png" in said


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_folders_and_files_elsewhere_are_found_too(form: str, tmp_path: Path) -> None:
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    written, asked = (unicodedata.normalize(each, f"{NAMES[0]} images") for each in (form, other))
    root = draw_folder(tmp_path / written, classes=3)
    assert as_on_disk(tmp_path / asked) == root
    assert len(Folder(root=tmp_path / asked).classes()) == 3
    assert found_images([tmp_path / asked]) == found_images([root])
    assert as_on_disk(tmp_path / "none") == tmp_path / "none"
