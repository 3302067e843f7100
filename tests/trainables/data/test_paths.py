"""Paths in lists that are written differently from the disk: taken if they can mean one file only."""

import csv
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st
from support.refusals import sentences_of
from support.small_search import draw_folder

from trainables.data.sets.folders import Folder
from trainables.data.sets.manifest import Manifest
from trainables.data.sets.paths import Folders, as_on_disk
from trainables.inference.images import found_images

NAMES = (
    "M\N{LATIN SMALL LETTER U WITH DIAERESIS}ller", "\N{HANGUL SYLLABLE HAN}", "Stra\N{LATIN SMALL LETTER SHARP S}e",
    "a.b", "x y", "it's", 'a "b"', "a:b", "a;b", "a|b", "a\u2028b", "a\x85b", "a\x0bb", "a\x1cb", "a\nb", "a,b", "50%",
    "b ",
)  # fmt: skip
WRITTEN = {
    "as it is": lambda path: path,
    "composed": lambda path: unicodedata.normalize("NFC", path),
    "decomposed": lambda path: unicodedata.normalize("NFD", path),
    "in capitals": lambda path: path.replace("a", "A").replace(".png", ".PNG"),
    "with backslashes": lambda path: path.replace("/", "\\"),
    "with a dot": lambda path: f"./{path}",
}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
    st.sampled_from(("NFC", "NFD")),
    st.sampled_from(sorted(WRITTEN)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("image.png", "image.png ")),
)
def test_a_path_that_can_mean_one_file_is_that_file(
    parts: list[str], form: str, way: str, absolute: bool, index: bool, last: str
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        key = unicodedata.normalize(form, "/".join([*parts, last]))
        keys = [key, *(f"c{number}/0.png" for number in range(8))]
        for path in (root / each for each in keys):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        given = WRITTEN[way](key)
        if absolute and way in ("as it is", "composed", "decomposed"):
            given = f"{root}/{given}"
        with (root / "list.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*[""] * index, "path", "class"])
            for row, path in enumerate([given, *keys[1:]]):
                writer.writerow([*[str(row)] * index, path, f"class {row}"])
        assert Manifest(file=root / "list.csv").classes()["class 0"] == (key,)


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
