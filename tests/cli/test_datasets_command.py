"""``holdout datasets``: its list, and its check of a folder, also of hostile ones."""
# ruff: noqa: E501

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat
from support.commands import holdout_here, json_of, plain, printed, refusal, write_search
from support.small_search import draw_folder, small_search
from support.trees import make_tree
from support.without_ray import MADE_UP

from trainables.data import DATASETS
from trainables.data.sets.folders import Folder
from trainables.data.sets.glyphs import Glyphs


def test_each_is_listed_with_publisher_layout_and_options() -> None:
    shown = printed("datasets")
    entries = json_of("datasets")
    assert [entry["name"] for entry in entries] == list(DATASETS)
    for entry in entries:
        for text in (entry["summary"], entry["publisher"], *entry["layout"], *entry["options"]):
            assert plain(text) in shown
    (alone,) = json_of("datasets", "inaturalist")
    assert alone["options"]["class_list"]["default"] is None


def test_a_part_is_counted_where_it_is_meant(tmp_path: Path) -> None:
    root = make_tree("cub200", tmp_path)
    of_tree = ("datasets", "cub200", "--root", root, "--set", "subset=true")
    shown = printed(*of_tree)
    assert "cub200: a part of CUB-200-2011: 40 images" in shown
    assert "training half │ 4 │ 20" in shown
    found = json_of(*of_tree)
    assert found.pop("name") == "cub200"
    assert found.pop("identity").startswith("a part of CUB-200-2011: 40 images, ")
    assert {part: (counts["classes"], counts["images"]) for part, counts in found.items()} == {
        "train_half": (4, 20), "train": (2, 10), "validation": (2, 10), "test": (4, 20),
    }  # fmt: skip
    drawn = json_of("datasets", "glyphs", "--set", "num_classes=40")
    assert drawn["train_half"] == {"classes": 20, "images": 480}


def test_images_are_written_as_files_of_a_folder(tmp_path: Path) -> None:
    """A search on the folder has the same pixels, and a folder that exists is refused."""
    drawn, folder = Glyphs(num_classes=8, images_per_class=3), tmp_path / "photos"
    options = ("--set", "num_classes=8", "--set", "images_per_class=3", "--to", folder)
    holdout_here("datasets", "glyphs", *options)
    written = Folder(root=folder)
    for name, keys in written.classes().items():
        for key, of_drawn in zip(keys, drawn.classes()[name], strict=True):
            assert np.array_equal(written.read(key), drawn.read(of_drawn))
    assert "exists already" in refusal("datasets", "glyphs", *options)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("cub200", "--root", "{root}"), "lacks classes.txt of CUB-200-2011. Give the folder that holds them"),
        (("cub200", "--root", "{root}", "--set", "subst=true"), "no such option (did you mean subset?)"),
        (("cub200", "--root", "{root}", "--set", "subset=7"), "subset: must be true or false; it is 7."),
        (("cub", "--root", "{root}"), "it is 'cub' (did you mean cub200?)"),
        (("--root", "{root}"), "--root, --set and --to need the name of a data set"),
    ],
)
def test_mistakes_exit_with_2(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    make_tree("cub200", tmp_path, classes_per_half=2, images_per_class=2)
    (tmp_path / "classes.txt").unlink()
    done = holdout_here("datasets", *(text.format(root=tmp_path) for text in arguments), code=2)
    assert expected in plain(done.stderr)
    assert not plain(done.stderr).startswith(":")
    assert done.stdout == ""


# Hostile data trees, one per row: the change to a good tree and the expected sentence, or "" if it is accepted. Lists
# that are no files are in `tests/hostile`, and what a folder leaves out in `tests/trainables/data`.

Change = Callable[[Path], object]


def linked(root: Path, name: str, target: str) -> None:
    (root / name).symlink_to(target)


def too_deep(root: Path) -> None:
    """Create a path longer than the system allows, step by step."""
    here = os.open(root / "class-00", os.O_RDONLY)
    for _ in range(18):
        os.mkdir("d" * 250, dir_fd=here)
        here, above = os.open("d" * 250, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)


TWICE = "by another name, so its images would be read twice; remove the link"
# fmt: off
FOLDERS: dict[str, tuple[Change, str]] = {
    "three classes": (lambda root: [shutil.rmtree(path) for path in root.glob("class-0[3-7]")], "The data set has 3 classes"),
    "a class by a link to nowhere": (lambda root: linked(root, "heron", "nowhere"), "1 broken link in {root!r}: heron."),
    "a link in a circle": (lambda root: linked(root, "class-00/again", "."), TWICE),
    "one folder in the training and the test half": (lambda root: linked(root, "zebra", "class-00"), TWICE),
    "a path that is too long": (too_deep, "cannot be read: File name too long. Fix or remove it."),
}
# fmt: on


def refused(*arguments: object) -> str:
    """Return the lines of a refused command, without terminal codes."""
    done = holdout_here(*map(str, arguments), code=2)
    assert done.stdout == ""
    assert done.stderr.replace("\n", "").isprintable()
    return done.stderr


@pytest.mark.parametrize("name", FOLDERS)
def test_a_damaged_folder_is_a_sentence(name: str, tmp_path: Path) -> None:
    (change, said), root = FOLDERS[name], draw_folder(tmp_path / "images", classes=8, images=5)
    change(root)
    assert said.format(root=str(root)) in refused("datasets", "folder", "--root", root)


def lines(list_: str, change: Callable[[list[str]], list[str]]) -> Change:
    """Change the lines of a list."""
    return lambda root: (root / list_).write_text(
        "".join(f"{line}\n" for line in change((root / list_).read_text().splitlines()))
    )


def doubled(list_: str) -> Change:
    return lines(list_, lambda found: [*found, found[-1]])


def swapped(list_: str, old: str, new: str) -> Change:
    """Replace the first ``old`` of a list by ``new``."""

    def change(root: Path) -> None:
        text = (root / list_).read_text()
        assert old in text
        (root / list_).write_text(text.replace(old, new, 1))

    return change


def as_windows_writes(list_: str) -> Change:
    """Add a byte-order mark, and end lines with CRLF."""
    return lambda root: (root / list_).write_bytes(
        b"\xef\xbb\xbf" + (root / list_).read_bytes().replace(b"\n", b"\r\n")
    )


def cars(change: Callable[[Any, Any], object]) -> Change:
    """Change the annotations and names of Cars196."""

    def rewrite(root: Path) -> None:
        found = loadmat(root / "cars_annos.mat")
        change(found["annotations"], found["class_names"])
        savemat(root / "cars_annos.mat", {key: found[key] for key in ("annotations", "class_names")})

    return rewrite


def unlisted(root: Path) -> None:
    """Let the first annotation of iNaturalist name another image."""
    found = json.loads((root / "train2018.json").read_text())
    found["annotations"][0]["image_id"] = 10**9
    (root / "train2018.json").write_text(json.dumps(found))


def in_both(root: Path) -> None:
    """List another image of the last training product for the test."""
    last = (root / "Ebay_train.txt").read_text().splitlines()[-1].replace("_4.", "_9.", 1)
    lines("Ebay_test.txt", lambda found: [*found, last])(root)


OUTSIDE = " outside of '/"
# fmt: off
LISTED: dict[str, dict[str, tuple[Change, str]]] = {
    "cub200": {
        "a line twice": (doubled("images.txt"), "images.txt in {root!r} repeats 1 image_id: 40."),
        "an image without a class": (lines("image_class_labels.txt", lambda found: found[:-1]), "1 image in only one of images.txt and"),
        "a class that is not named": (swapped("image_class_labels.txt", "1 1\n", "1 999\n"), "(KeyError: '999')"),
        "a path out of the folder": (swapped("images.txt", "001.Bird_1/Bird_1_0001_0.jpg", "../../secret.jpg"), OUTSIDE),
        "a list as Windows writes it": (as_windows_writes("images.txt"), ""),
    },
    "cars196": {
        "a class that is not named": (cars(lambda found, _: found["class"].__setitem__((0, 0), np.array([[200]]))), "(ValueError: a class is 200, and there are 8)"),
        "two classes of one name": (cars(lambda _, names: names[0].__setitem__(1, names[0][0])), "more than one class is called"),
    },
    "sop": {
        "a line twice": (doubled("Ebay_train.txt"), " listed more than once: "),
        "a product in both lists": (in_both, " listed both for training and for test: 4."),
        "an absolute path": (swapped("Ebay_test.txt", "bicycle_final/", "/etc/"), OUTSIDE),
        "a column too few": (swapped("Ebay_test.txt", " 1 bicycle", " bicycle"), "line 2 is '"),
    },
    "inshop": {
        "a part that is none": (swapped("Eval/list_eval_partition.txt", "gallery", "\x1b[2J"), "an evaluation_status is '\\x1b[2J'"),
    },
    "vehicleid": {
        "test lists that disagree": (lines("train_test_split/test_list_1600.txt", lambda found: found[1:]), "has other images than a smaller list"),
    },
    "inaturalist": {
        "an image that is not listed": (unlisted, "(KeyError: 1000000000)"),
    },
}
# fmt: on


@pytest.mark.parametrize(("dataset", "name"), [(dataset, name) for dataset in LISTED for name in LISTED[dataset]])
def test_a_published_data_set(dataset: str, name: str, tmp_path: Path) -> None:
    (change, said), root = LISTED[dataset][name], make_tree(dataset, tmp_path / dataset)
    change(root)
    arguments = ("datasets", dataset, "--root", root, "--set", "subset=true")
    if said:
        assert said.format(root=str(root)) in refused(*arguments)
        return
    found = json_of(*arguments)
    assert found["train_half"] == found["test"] == {"classes": 4, "images": 20}


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
