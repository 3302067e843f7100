"""The CSV manifest: its classes, groups, parts and cameras, and all that can be wrong with it."""

import csv
import pickle
import random
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.odd_input import NAMES, odd_list
from support.refusals import sentences_of
from support.small_search import draw_folder
from support.trees import make_tree

from trainables.data.dataset import joined_classes
from trainables.data.sets.benchmarks import InShop
from trainables.data.sets.folders import Folder, as_on_disk
from trainables.data.sets.manifest import Manifest
from trainables.data.split import ClassSplit, check_classes, split_dataset
from trainables.inference.given_images import found_images

Rows = Sequence[Mapping[str, Any]]


def write(folder: Path, rows: Rows, *, files: bool = True) -> Path:
    path = folder / "x.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows if files else ():
        (folder / row["path"]).parent.mkdir(parents=True, exist_ok=True)
        (folder / row["path"]).touch()
    return path


def plain(classes: int = 8, images: int = 2, **more: Any) -> list[dict[str, Any]]:
    places = product(range(classes), range(images))
    return [{"path": f"of {label}/{number}.png", "class": f"class {label}", **more} for label, number in places]


def with_parts(classes: int = 8, images: int = 4) -> list[dict[str, Any]]:
    """Return rows whose last half of classes are query and gallery, by two cameras."""
    parts = ("query", "gallery")
    return [
        {**row, "part": parts[at % 2] if at >= classes * images // 2 else "train", "camera": f"camera {at // 2 % 2}"}
        for at, row in enumerate(plain(classes, images))
    ]


def checked(file: Path, **options: Any) -> Manifest:
    dataset = Manifest(file=file, **options)
    check_classes(split_dataset(dataset, dataset.classes(), ratio=0.9, seed=0), dataset, dataset.classes())
    return dataset


refusals = partial(sentences_of, checked)


def test_a_manifest_is_what_its_rows_say(tmp_path: Path) -> None:
    rows = [{**row, "group": f"shop {at // 2}"} for at, row in enumerate(with_parts())]
    file = write(tmp_path, rows[::-1])
    dataset = Manifest(file=file, ignore_same_camera=True)
    assert list(dataset.classes()) == [f"class {label}" for label in range(8)]
    assert dataset.classes()["class 3"] == tuple(row["path"] for row in rows[::-1] if row["class"] == "class 3")
    assert dataset.groups() == {row["path"]: row["group"] for row in rows}
    assert dataset.parts() == {row["path"]: row["part"] for row in rows if row["part"] != "train"}
    assert dataset.cameras() == {row["path"]: row["camera"] for row in rows}
    assert Manifest(file=file).cameras() == {}
    names = tuple(dataset.classes())
    assert dataset.published_split() == (names[:4], names[4:])
    assert pickle.loads(pickle.dumps(dataset)).classes() == dataset.classes()
    assert dataset.stamp(rows[0]["path"]).startswith("0-")


def test_paths_are_relative_to_the_root_and_whole_numbers_are_sorted_by_size(tmp_path: Path) -> None:
    rows = [{"path": f"./{n}.png", "class": str(n)} for n in (10, 9, 2, 1)]
    (tmp_path / "images").mkdir()
    write(tmp_path / "images", rows)
    file = write(tmp_path, [{**row, "path": f" {row['path']}"} for row in rows], files=False)
    dataset = Manifest(file=file, root=tmp_path / "images")
    assert dataset.classes() == {str(n): (f"{n}.png",) for n in (1, 2, 9, 10)}
    assert dataset.published_split() is None


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"file": "a.png", "label": "x"}], "which has no column path and no column class; it has file, label."),
        (plain(groups="x"), "which has the unknown column groups (did you mean group?); the columns are path, class,"),
        ([*plain(), {"path": "a.png", "class": ""}], "1 cell of the column class empty, the first in row 17; fill"),
        (plain(part="test"), "16 rows with the unknown part test; a part is train, query, gallery, distractor."),
        (plain(1, 5), "all 5 rows are of one class, class 0"),
        ([*plain(), {"path": "../a.png", "class": "x"}], "1 path outside of "),
        ([*plain(), *plain(1, 1)], "1 path more than once: of 0/0.png; keep one row each."),
        (plain(group="one"), "All 8 classes are joined by the groups that they share (class 0, class 1, class 2, and"),
    ],
)  # fmt: skip
def test_bad_rows_are_refused_in_a_sentence(rows: Rows, said: str, tmp_path: Path) -> None:
    write(tmp_path, [row for row in rows if not str(row.get("path", "/")).startswith(("/", ".."))] or plain())
    sentences = refusals(write(tmp_path, rows, files=False))
    assert said in " ".join(sentences), sentences


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "which is empty; its first line names the columns path, class, group, part, camera."),
        (b"path,class\na.png\n", "1 line have another number of cells than the first line, which has 2; the first is"),
        (b'path,class\n"a.png,x', "which is not a readable CSV file (unexpected end of data); write it again."),
        (b"path,class\n\xff\xfe,x\n", "cannot be read: it is not UTF-8 text"),
        (b"path,class,class\na.png,x,y\n", "which has the column class more than once; keep one."),
    ],
)
def test_an_unreadable_file_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    assert said in refusals(tmp_path / "x.csv")[0]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    assert "dataset.file is missing" in sentences_of(Manifest)[0]
    assert refusals(tmp_path / "y.csv")[0].endswith("which does not exist. Give a CSV file of images.")
    file = write(tmp_path, plain())
    assert "dataset.root is" in refusals(file, root=tmp_path / "nothing")[0]
    assert "no column camera; add it" in refusals(file, ignore_same_camera=True)[0]
    for lost in ("of 3/1.png", "of 5/0.png"):
        (tmp_path / lost).unlink()
    (sentence,) = refusals(file)
    assert re.search("2 of the 16 images are missing in .* the first is of 3/1.png;", sentence)


def test_a_gallery_without_the_class_of_a_query_is_refused(tmp_path: Path) -> None:
    rows = with_parts()
    alone = [{**row, "part": "query"} if row["class"] == "class 6" else row for row in rows]
    (sentence,) = refusals(write(tmp_path, alone))
    assert "A gallery without the query's class: 4 of the 10 test queries have no image of their class" in sentence
    assert "such as of 6/0.png, of 6/1.png, of 6/2.png, and 1 more." in sentence
    one_camera = [{**row, "camera": "1"} if row["class"] == "class 6" else row for row in rows]
    file = write(tmp_path, one_camera)
    (sentence,) = refusals(file, ignore_same_camera=True)
    assert "2 of the 8 test queries have no image of their class that another camera took" in sentence
    assert checked(file).cameras() == {}


@settings(max_examples=15, deadline=None)
@given(classes=st.integers(8, 40), edges=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=25))
def test_classes_are_joined_by_their_groups(classes: int, edges: list[tuple[int, int]]) -> None:
    edges = [(a % classes, b % classes) for a, b in edges]
    images, groups = {str(n): [f"{n} alone"] for n in range(classes)}, {}
    for number, ends in enumerate(edges):
        for end in ends:
            images[str(end)].append(key := f"{end} edge {number}")
            groups[key] = f"group {number}"
    component = {n: {n} for n in range(classes)}
    for _ in range(classes):  # by repeated union
        for a, b in edges:
            component[a] = component[b] = component[a] | component[b]
    expected = {frozenset(set().union(*(component[m] for m in found))) for found in component.values()}
    joined = {frozenset(map(int, unit)) for unit in joined_classes(images, groups)}
    assert joined == {found for found in expected if len(found) > 1}


def test_the_split_records_groups_parts_and_cameras(tmp_path: Path) -> None:
    rows = [{**row, "group": str(at // 4)} for at, row in enumerate(with_parts())]
    rows[1]["group"] = "5"  # joins classes 0 and 5, which are of different halves
    (sentence,) = refusals(write(tmp_path, rows))
    assert (
        "1 set of classes with a common group in both the training and the test half, such as class 0, cl" in sentence
    )
    rows[1]["group"] = "2"
    digests = []
    for at, change in enumerate([{}, {"group": "77"}, {"part": "gallery"}, {"camera": "camera 7"}, {}]):
        rows[-2] |= change if at != 4 else {"group": "7", "part": "query", "camera": "camera 1"}
        dataset = Manifest(file=write(tmp_path, rows), ignore_same_camera=True)
        split = split_dataset(dataset, dataset.classes(), ratio=0.5, seed=0)
        assert split.joined[0] == ("class 0", "class 2")
        assert ClassSplit.from_json(split.to_json()) == split
        digests.append(split.digest)
        rows[-2] |= {"group": "7", "part": "query", "camera": "camera 1"}
    assert len(set(digests[:4])) == 4
    assert digests[4] == digests[0]


def test_in_shop_has_queries_and_a_gallery(tmp_path: Path) -> None:
    root = make_tree("inshop", tmp_path, classes_per_half=4, images_per_class=6)
    dataset = InShop(root=str(root), subset=True)
    lines = (root / "Eval" / "list_eval_partition.txt").read_text().splitlines()[2:]
    listed = {f"Img/{path}": part for path, _, part in map(str.split, lines)}
    assert set(listed.values()) == {"train", "query", "gallery"}
    assert dataset.parts() == {key: part for key, part in listed.items() if part != "train"}
    train, test = dataset.published_split()
    assert {listed[key] for name in train for key in dataset.classes()[name]} == {"train"}
    check_classes(split_dataset(dataset, dataset.classes(), ratio=0.5, seed=0), dataset, dataset.classes())
    for name in test:
        assert {listed[key] for key in dataset.classes()[name]} == {"query", "gallery"}


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_path_that_can_mean_one_file_is_that_file(draw: random.Random) -> None:
    with TemporaryDirectory() as folder:
        file, classes = odd_list(Path(folder), draw)
        assert Manifest(file=file).classes() == classes


@pytest.mark.parametrize(
    ("names", "says"),
    [(["a.png", "A.png"], "1 of the 2 images are missing"), (["a.png"], "1 path more than once: a.png")],
)
def test_an_ambiguous_path_and_two_of_one_file_are_refused(names: list[str], says: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "list.csv").write_text("path,class\na.PNG,x\na.png,y\n")
    assert says in sentences_of(Manifest(file=tmp_path / "list.csv").classes)[0]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_folders_and_files_elsewhere_are_found_too(form: str, tmp_path: Path) -> None:
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    written, asked = (unicodedata.normalize(each, f"{NAMES[0]} images") for each in (form, other))
    root = draw_folder(tmp_path / written, classes=3)
    assert as_on_disk(tmp_path / asked) == root
    assert len(Folder(root=tmp_path / asked).classes()) == 3
    assert found_images([tmp_path / asked]) == found_images([root])
    assert as_on_disk(tmp_path / "none") == tmp_path / "none"
