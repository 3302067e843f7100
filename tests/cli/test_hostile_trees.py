"""Hostile data trees, one per row: a folder is counted as intended, or refused in one sentence with exit code 2.

A row has the change to a good tree and the expected sentence, or "" if it is accepted. All use `holdout datasets`,
which checks a folder like a new search, and a few `holdout run`.
"""

import json
import os
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from support.commands import holdout_here, plain, write_search
from support.refusals import levels_below
from support.small_search import draw_folder, small_search
from support.trees import WRITERS, make_tree
from support.without_ray import MADE_UP

from trainables.data.sets.folders import Folder
from trainables.errors import InvalidInput

IMAGE = "class-00/00.png"
RESTORE = "Restore the published"


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A change to a good tree, and a part of the one expected sentence; "" if there is none."""

    change: Callable[[Path], object]
    said: str = ""
    options: tuple[str, ...] = ()


def copied(root: Path, *names: str) -> None:
    """The first image under other names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((root / IMAGE).read_bytes())


def only(root: Path, classes: int, images: int = 5) -> None:
    for folder in sorted(root.iterdir()):
        for path in sorted(folder.iterdir()):
            if folder.name >= f"class-{classes:02d}" or path.name >= f"{images:02d}.png":
                path.unlink()
        if folder.name >= f"class-{classes:02d}":
            folder.rmdir()


def emptied(root: Path) -> None:
    for path in root.glob("class-03/*"):
        path.unlink()


def linked(root: Path, name: str, target: str) -> None:
    (root / name).symlink_to(target)


def outside(root: Path) -> None:
    (root / "class-03").rename(root.parent / "elsewhere")
    linked(root, "class-03", "../elsewhere")


def too_deep(root: Path) -> None:
    """Create a path longer than the system allows, step by step."""
    here = os.open(root / "class-00", os.O_RDONLY)
    for _ in range(18):
        os.mkdir("d" * 250, dir_fd=here)
        here, above = os.open("d" * 250, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)


def named(name: str | bytes) -> Callable[[Path], object]:
    """Rename the first class."""
    return lambda root: os.rename(root / "class-00", os.fsencode(root) + b"/" + os.fsencode(name))


TWICE = "by another name, so its images would be read twice; remove the link"
FOLDERS: dict[str, Tree] = {
    "a good folder": Tree(change=lambda root: None),
    "hidden files": Tree(
        change=lambda root: copied(root, ".DS_Store", "class-00/.DS_Store", "class-00/._00.png", ".git/0.png")
    ),
    "files that are no images": Tree(
        change=lambda root: copied(
            root, "class-00/Thumbs.db", "class-00/desktop.ini", "readme.md", "images.zip", "0.png"
        )
    ),
    "nested folders": Tree(change=lambda root: copied(root, "class-00/deeper/still/00.png")),
    "a folder called as an image": Tree(change=lambda root: copied(root, "class-00/more.jpg/00.png")),
    "suffixes in capitals": Tree(change=lambda root: copied(root, "class-00/A.PNG")),
    "the leftovers of a Mac's archive": Tree(change=lambda root: copied(root, "__MACOSX/._00.png")),
    "an empty class": Tree(change=emptied, said="1 of the 8 class folders in"),
    "a class of other files": Tree(change=lambda root: copied(root, "new/00.heic"), said="without images: new."),
    "no class": Tree(change=lambda root: only(root, 0), said="has no sub-folder. Give it one for each class."),
    "one class": Tree(change=lambda root: only(root, 1), said="The data set has 1 class: 0 in the training half"),
    "three classes": Tree(change=lambda root: only(root, 3), said="The data set has 3 classes"),
    "a class of one image": Tree(change=lambda root: [p.unlink() for p in root.glob("class-00/0[1-9].png")]),
    "classes of one image each": Tree(
        change=lambda root: only(root, 8, 1), said="classes has 2 images, and a class with one has nothing to find"
    ),
    "a class by a link out of the folder": Tree(change=outside),
    "a class by a link to nowhere": Tree(
        change=lambda root: linked(root, "heron", "nowhere"), said="1 broken link in {root!r}: heron."
    ),
    "images by a link to nowhere": Tree(
        change=lambda root: linked(root, "class-00/more", "nowhere"), said=": class-00/more. Fix or remove."
    ),
    "a class by a link to itself": Tree(
        change=lambda root: linked(root, "heron", "heron"), said="1 broken link in {root!r}: heron."
    ),
    "a link in a circle": Tree(change=lambda root: linked(root, "class-00/again", "."), said=TWICE),
    "a link to all": Tree(change=lambda root: linked(root, "class-00/all", ".."), said=TWICE),
    "two links to all": Tree(
        change=lambda root: [linked(root, f"class-0{number}/all", "..") for number in range(8)], said=TWICE
    ),
    "a class that is all": Tree(change=lambda root: linked(root, "all", "."), said=TWICE),
    "one folder in the training and the test half": Tree(
        change=lambda root: linked(root, "zebra", "class-00"), said=TWICE
    ),
    "a path that is too long": Tree(change=too_deep, said="cannot be read: File name too long. Fix or remove it."),
    "two links in a circle": Tree(
        change=lambda root: [linked(root, "class-00/a", "../class-01"), linked(root, "class-01/b", "../class-00")],
        said=TWICE,
    ),
    "an image of 255 bytes": Tree(change=lambda root: copied(root, f"class-00/{'ü' * 125}a.png")),
    "a class of a line break and markup": Tree(change=named("a\n[red]b[/red]"[:-6])),
    "a class that clears the terminal": Tree(change=named("\x1b[2J")),
    "a class of 255 bytes": Tree(change=named("ü" * 127)),
    "a class that is not UTF-8": Tree(
        change=named(b"\xff\xfe"), said="5 file names that cannot be read as UTF-8: '\\udcff\\udcfe/00.png'"
    ),
    "an empty class that is not UTF-8": Tree(
        change=lambda root: os.mkdir(os.fsencode(root) + b"/\xff"), said="without images: \\udcff."
    ),
    "an empty class of a line break": Tree(change=lambda root: (root / "a\nb").mkdir(), said="without images: a\\nb."),
}


LEFT_OUT = ("hidden files", "files that are no images", "the leftovers of a Mac's archive")
"""The folders of which one sentence counts what is left out."""


def refused(*arguments: object) -> str:
    """Return the lines of a refused command, without terminal codes."""
    done = holdout_here(*map(str, arguments), code=2)
    assert done.stdout == ""
    assert done.stderr.replace("\n", "").isprintable()
    return done.stderr


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder(name: str, tmp_path: Path) -> None:
    tree, root = FOLDERS[name], draw_folder(tmp_path / "images", classes=8, images=5)
    tree.change(root)
    arguments = ("datasets", "folder", "--root", root)
    if tree.said:
        assert tree.said.format(root=str(root)) in refused(*arguments)
        return
    done = holdout_here(*arguments, "--json")
    assert (done.stderr.startswith("Left out in ") and done.stderr.count("\n") == 1) == (name in LEFT_OUT), done.stderr
    found = json.loads(done.stdout)
    images = sum(1 for path in root.rglob("[!.]*") if path.suffix.lower() == ".png" and path.parent != root)
    links = 5 if (root / "class-03").is_symlink() else 0
    hidden = name == "hidden files"
    assert found["train_half"]["images"] + found["test"]["images"] == images + links - hidden
    assert found["train_half"]["classes"] == found["test"]["classes"] == 4


@pytest.mark.parametrize("levels", [500, 1_900])
def test_folders_in_many_levels(levels: int, tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", classes=8, images=5)
    with levels_below(root / "class-00", levels) as deepest:
        (deepest / "deep.png").write_bytes((root / IMAGE).read_bytes())
        found = json.loads(holdout_here("datasets", "folder", "--root", root, "--json").stdout)
    assert found["train_half"]["images"] + found["test"]["images"] == 41


@pytest.mark.parametrize("root", ["a\0b", "x" * 5000, "/dev/null", "/dev/null/a", ""])
@pytest.mark.parametrize("name", ["folder", "cub200"])
def test_a_root_that_cannot_be(name: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused("datasets", name, "--set", f"root={json.dumps(root)}")
    assert ("cannot be used (File name too long)" if len(root) > 1000 else "dataset.root is ") in said


def test_folders_that_may_not_be_read(tmp_path: Path) -> None:
    """Root can read every folder, so the process becomes another user meanwhile."""
    root = draw_folder(tmp_path / "images", classes=8, images=5)
    assert len(Folder(root=str(root)).classes()) == 8  # imports what the other user may not
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    user, group = os.geteuid(), os.getegid()
    for closed, said in ((root / "class-00", "cannot be read: Permission denied"), (root, "which cannot be read")):
        closed.chmod(0)
        if user == 0:
            os.setegid(65534)
            os.seteuid(65534)
        try:
            with pytest.raises(InvalidInput, match=said):
                Folder(root=str(root)).classes()
        finally:
            os.seteuid(user)
            os.setegid(group)
            closed.chmod(0o755)


def lines(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))


def swapped(list_: str, old: str, new: str) -> Callable[[Path], None]:
    """Replace the first ``old`` of a list by ``new``."""

    def change(root: Path) -> None:
        text = (root / list_).read_text()
        assert old in text
        (root / list_).write_text(text.replace(old, new, 1))

    return change


def doubled(list_: str) -> Callable[[Path], None]:
    return lambda root: lines(root / list_, lambda found: [*found, found[-1]])


def content(list_: str, written: bytes) -> Callable[[Path], object]:
    return lambda root: (root / list_).write_bytes(written)


def pipe(list_: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / list_).unlink()
        os.mkfifo(root / list_)

    return change


def folder(list_: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / list_).unlink()
        (root / list_).mkdir()

    return change


def as_windows_writes(list_: str) -> Callable[[Path], None]:
    """Add a byte-order mark, and end lines with CRLF."""

    def change(root: Path) -> None:
        (root / list_).write_bytes(b"\xef\xbb\xbf" + (root / list_).read_bytes().replace(b"\n", b"\r\n"))

    return change


def cars(change: Callable[[Any, Any], object]) -> Callable[[Path], None]:
    """Change the annotations and names of Cars196."""

    def rewrite(root: Path) -> None:
        found = loadmat(root / "cars_annos.mat")
        change(found["annotations"], found["class_names"])
        savemat(root / "cars_annos.mat", {key: found[key] for key in ("annotations", "class_names")})

    return rewrite


def labelled(label: int) -> Callable[[Path], None]:
    return cars(lambda annotations, _: annotations["class"].__setitem__((0, 0), np.array([[label]])))


def inaturalist(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def rewrite(root: Path) -> None:
        found = json.loads((root / "train2018.json").read_text())
        change(found)
        (root / "train2018.json").write_text(json.dumps(found))

    return rewrite


def of_entry(part: str, key: str, value: object) -> Callable[[Path], None]:
    return inaturalist(lambda found: found[part][0].__setitem__(key, value))


DAMAGED = "damaged or not of"
OUTSIDE = " outside of '/"
LISTED: dict[str, dict[str, Tree]] = {
    "cub200": {
        "a line twice": Tree(change=doubled("images.txt"), said="images.txt in {root!r} repeats 1 image_id: 40."),
        "a class twice": Tree(change=doubled("classes.txt"), said="classes.txt in {root!r} repeats 1 class_id: 8."),
        "two labels": Tree(
            change=lambda root: lines(root / "image_class_labels.txt", lambda found: [*found, "1 2"]),
            said="image_class_labels.txt in {root!r} repeats 1 image_id: 1.",
        ),
        "an image under two numbers": Tree(
            change=swapped("images.txt", "Bird_1_0002_17.jpg", "Bird_1_0001_0.jpg"),
            said="1 image of CUB-200-2011 in {root!r} listed more than once: images/001.Bird_1/Bird_1_0001_0.jpg.",
        ),
        "two classes of one name": Tree(
            change=swapped("classes.txt", "2 002.Bird_2", "2 001.Bird_1"),
            said="(ValueError: more than one class is called 001.Bird_1)",
        ),
        "a class that is not named": Tree(
            change=swapped("image_class_labels.txt", "1 1\n", "1 999\n"), said="(KeyError: '999')"
        ),
        "classes that are not numbered in a row": Tree(
            change=lambda root: [
                swapped("classes.txt", "8 008.Bird_8", "7000 008.Bird_8")(root),
                lines(
                    root / "image_class_labels.txt",
                    lambda found: [line.removesuffix(" 8") + " 7000" * line.endswith(" 8") for line in found],
                ),
            ]
        ),
        "a path out of the folder": Tree(
            change=swapped("images.txt", "001.Bird_1/Bird_1_0001_0.jpg", "../../secret.jpg"), said=OUTSIDE
        ),
        "a path of a zero byte": Tree(change=swapped("images.txt", "001.Bird_1/", "001\0/"), said=OUTSIDE),
        "a path of 5,000 characters": Tree(
            change=swapped("images.txt", "001.Bird_1/", f"{'x' * 5000}/"), said="cannot be read: File name too long"
        ),
        "an empty list": Tree(change=content("images.txt", b""), said="in only one of images.txt and"),
        "a list of zeros": Tree(
            change=content("images.txt", bytes(4096)), said="not of the form `image_id image_name`: line 1"
        ),
        "a list that is a pipe": Tree(
            change=pipe("images.txt"), said="images.txt of CUB-200-2011 in {root!r} cannot be read: not a regular file"
        ),
        "a list that is a folder": Tree(change=folder("images.txt"), said="images.txt' cannot be read: Is a directory"),
        "a list as Windows writes it": Tree(change=as_windows_writes("images.txt")),
        "a list of terminal commands": Tree(
            change=swapped("image_class_labels.txt", "1 1\n", "\x1b[2J 1\n"),
            said="2 images in only one of images.txt and",
        ),
    },
    "cars196": {
        "class 0": Tree(change=labelled(0), said="(ValueError: a class is 0, and there are 8)"),
        "a class that is not named": Tree(change=labelled(200), said="(ValueError: a class is 200, and there are 8)"),
        "two classes of one name": Tree(
            change=cars(lambda _, names: names[0].__setitem__(1, names[0][0])), said="more than one class is called"
        ),
        "an image twice": Tree(
            change=cars(lambda annotations, _: annotations[0].__setitem__(1, annotations[0][0])),
            said="1 image of Cars196 in {root!r} listed more than once: car_ims/000001.jpg.",
        ),
        "annotations of another kind": Tree(
            change=lambda root: savemat(root / "cars_annos.mat", {"annotations": 7, "class_names": 7}), said=DAMAGED
        ),
        "annotations that are text": Tree(change=content("cars_annos.mat", b"annotations\n" * 99), said=DAMAGED),
        "annotations that are a pipe": Tree(change=pipe("cars_annos.mat"), said="not a regular file"),
        "annotations that are a folder": Tree(change=folder("cars_annos.mat"), said=DAMAGED),
    },
    "sop": {
        "a line twice": Tree(
            change=doubled("Ebay_train.txt"), said="1 image of Stanford Online Products in {root!r} listed"
        ),
        "a product in both lists": Tree(
            change=lambda root: lines(
                root / "Ebay_test.txt",
                lambda found: [*found, (root / "Ebay_train.txt").read_text().splitlines()[-1].replace("_4.", "_9.")],
            ),
            said="1 class of Stanford Online Products in {root!r} listed both for training and for test: 4.",
        ),
        "an image in both lists": Tree(
            change=swapped("Ebay_test.txt", "bicycle_final/11000004_0.JPG", "bicycle_final/11000000_0.JPG"),
            said="listed more than once: bicycle_final/11000000_0.JPG.",
        ),
        "an image that is not there": Tree(
            change=swapped("Ebay_test.txt", "11000004_0.JPG", "gone.JPG"),
            said="1 of the 40 listed images of Stanford Online Products missing in {root!r}: bicycle_final/gone.JPG.",
            options=("--set", "subset=false"),
        ),
        "an absolute path": Tree(change=swapped("Ebay_test.txt", "bicycle_final/", "/etc/"), said=OUTSIDE),
        "a column too few": Tree(change=swapped("Ebay_test.txt", " 1 bicycle", " bicycle"), said="line 2 is '"),
        "a list as Windows writes it": Tree(change=as_windows_writes("Ebay_train.txt")),
        "a list of two bytes a letter": Tree(
            change=lambda root: content("Ebay_train.txt", (root / "Ebay_train.txt").read_text().encode("utf-16"))(root),
            said="it is not UTF-8 text",
        ),
        "a list that is a pipe": Tree(change=pipe("Ebay_train.txt"), said="not a regular file"),
    },
    "inshop": {
        "a line twice": Tree(
            change=doubled("Eval/list_eval_partition.txt"), said="1 image of In-Shop Clothes Retrieval in {root!r} list"
        ),
        "an item that trains and is a query": Tree(
            change=swapped("Eval/list_eval_partition.txt", "id_00000001   train", "id_00000008   train"),
            said="1 class of In-Shop Clothes Retrieval in {root!r} listed both for training and for test: id_00000008.",
        ),
        "a part that is none": Tree(
            change=swapped("Eval/list_eval_partition.txt", "gallery", "\x1b[2J"),
            said="an evaluation_status is '\\x1b[2J'",
        ),
        "a path out of the folder": Tree(
            change=swapped("Eval/list_eval_partition.txt", "img/MEN", "../../x"), said=OUTSIDE
        ),
        "a list that is a pipe": Tree(change=pipe("Eval/list_eval_partition.txt"), said="not a regular file"),
    },
    "vehicleid": {
        "a line twice": Tree(
            change=doubled("train_test_split/train_list.txt"), said="1 image of VehicleID in {root!r} listed more"
        ),
        "a vehicle in a training and a test list": Tree(
            change=lambda root: lines(
                root / "train_test_split/train_list.txt",
                lambda found: [
                    *found,
                    (root / "train_test_split/test_list_2400.txt").read_text().splitlines()[-1].replace("00", "99", 1),
                ],
            ),
            said="1 class of VehicleID in {root!r} listed both for training and for test:",
        ),
        "test lists that disagree": Tree(
            change=lambda root: lines(root / "train_test_split/test_list_1600.txt", lambda found: found[1:]),
            said="has other images than a smaller list",
        ),
        "a path out of the folder": Tree(
            change=swapped("train_test_split/train_list.txt", "0007000", "../0007000"), said=OUTSIDE
        ),
        "a list that is a pipe": Tree(change=pipe("train_test_split/train_list.txt"), said="not a regular file"),
    },
    "inaturalist": {
        "a list and not a table": Tree(change=content("train2018.json", b"[1, 2]"), said=DAMAGED),
        "nothing in it": Tree(change=content("train2018.json", b"{}"), said="(KeyError: 'images')"),
        "nested without end": Tree(change=content("train2018.json", b"[" * 100_000), said="(RecursionError: "),
        "a file name that is a number": Tree(change=of_entry("images", "file_name", 7), said="a file_name is 7"),
        "a file name that is missing": Tree(
            change=inaturalist(lambda found: found["images"][0].pop("file_name")), said="(KeyError: 'file_name')"
        ),
        "a path out of the folder": Tree(change=of_entry("images", "file_name", "../x.jpg"), said=OUTSIDE),
        "a category that is a word": Tree(change=of_entry("annotations", "category_id", "wren"), said="'wren'"),
        "a category without end": Tree(
            change=of_entry("annotations", "category_id", float("inf")), said="(OverflowError: "
        ),
        "an image that is not listed": Tree(
            change=of_entry("annotations", "image_id", 10**9), said="(KeyError: 1000000000)"
        ),
        "an image of two categories": Tree(
            change=inaturalist(
                lambda found: found["annotations"].append({**found["annotations"][0], "category_id": 3})
            ),
            said="1 image of iNaturalist 2018 in {root!r} listed more than once",
        ),
        "annotations that are a pipe": Tree(change=pipe("val2018.json"), said="not a regular file"),
        "training categories that are not there": Tree(
            change=content("own.txt", b"1\n7777\n"),
            said="1 of the 2 categories in it missing in the annotations: 7777.",
            options=("--set", "class_list=own.txt"),
        ),
        "training categories that are nowhere": Tree(
            change=lambda root: None,
            said="nowhere.txt' cannot be read: No such file",
            options=("--set", "class_list=nowhere.txt"),
        ),
        "training categories that are a pipe": Tree(
            change=lambda root: os.mkfifo(root / "own.txt"),
            said="own.txt' cannot be read: it is not a regular file",
            options=("--set", "class_list=own.txt"),
        ),
    },
    "omniglot": {
        "a half that is a file": Tree(
            change=lambda root: [
                (root / "omniglot-py/images_evaluation").rename(root / "away"),
                (root / "omniglot-py/images_evaluation").write_text("x"),
            ],
            said="images_evaluation' cannot be read: Not a directory",
        ),
        "one half that is the other": Tree(
            change=lambda root: [
                (root / "omniglot-py/images_evaluation").rename(root / "away"),
                linked(root, "omniglot-py/images_evaluation", "images_background"),
            ],
            said="listed both for training and for test",
        ),
    },
}


@pytest.mark.parametrize(("dataset", "name"), [(dataset, name) for dataset, rows in LISTED.items() for name in rows])
def test_a_published_data_set(dataset: str, name: str, tmp_path: Path) -> None:
    tree, root = LISTED[dataset][name], make_tree(dataset, tmp_path / dataset)
    tree.change(root)
    options = tree.options if "subset=false" in tree.options else ("--set", "subset=true", *tree.options)
    arguments = ("datasets", dataset, "--root", root, *options)
    if tree.said:
        done = holdout_here(*arguments, code=2)
        assert tree.said.format(root=str(root)) in plain(done.stderr)
        assert all(line.isprintable() for line in done.stderr.splitlines())
        assert done.stdout == ""
        return
    found = json.loads(holdout_here(*arguments, "--json").stdout)
    assert found["train_half"] == found["test"] == {"classes": 4, "images": 20}


def test_every_published_data_set_has_rows() -> None:
    assert LISTED.keys() == WRITERS.keys()


@pytest.mark.parametrize("name", ["an empty class", "one folder in the training and the test half", "no class"])
def test_a_search_over_a_hostile_folder_creates_nothing(name: str, tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", classes=8, images=5)
    FOLDERS[name].change(root)
    file = write_search(tmp_path / "small.yaml", small_search(root))
    before = {path for path in tmp_path.rglob("*") if path.parent != root}
    assert FOLDERS[name].said.format(root=str(root)) in refused("run", file, "--runs", tmp_path / "runs")
    assert {path for path in tmp_path.rglob("*") if path.parent != root} == before


def test_a_search_over_hostile_images_names_them_all_and_creates_nothing(tmp_path: Path) -> None:
    """A pipe without a writer and an endless device do not block."""
    root, cache = draw_folder(tmp_path / "images", images=5), tmp_path / "cache"
    training, test = root / "class-00", root / "class-15"
    for held in (training, test):
        os.mkfifo(held / "a.jpg")
        (held / "b.jpg").symlink_to("/dev/zero")
        (held / "c.jpg").symlink_to("nowhere")
        (held / "d.jpg").write_bytes((held / "00.png").read_bytes()[:200])
        (held / "e.jpg").touch()
        (held / "f\n\x1b[2J.jpg").write_text("<html>")
    dataset = {"name": "folder", "root": str(root), "cache": str(cache)}
    file = write_search(tmp_path / "small.yaml", small_search(root, dataset=dataset, resources=MADE_UP))
    told = refused("run", file, "--runs", tmp_path / "runs")
    assert told.splitlines()[-1] == (
        "6 of 46 images cannot be read: class-00/a.jpg (not a file); class-00/b.jpg (not a file); "
        "class-00/c.jpg (No such file or directory); class-00/d.jpg (image file is truncated); class-00/e.jpg (the "
        "file is empty); class-00/f\\n\\x1b[2J.jpg (not an image of a known format). Replace or remove them."
    )
    assert not (tmp_path / "runs").exists()
    assert {path.suffix for path in cache.iterdir()} <= {".lock", ".used"}


def test_a_very_large_image_is_no_mistake_and_pillow_does_not_talk_into_it(tmp_path: Path) -> None:
    """Only the header is read, so its hundred million pixels need not exist."""
    root = draw_folder(tmp_path / "images", classes=8, images=5)
    size = (10_000).to_bytes(4, "big")
    content = (root / "class-00" / "00.png").read_bytes()
    header = b"IHDR" + size + size + content[24:29]
    large = content[:12] + header + zlib.crc32(header).to_bytes(4, "big") + content[33:]
    (root / "class-00" / "00.png").write_bytes(large)
    assert holdout_here("datasets", "folder", "--root", root).stderr == ""
