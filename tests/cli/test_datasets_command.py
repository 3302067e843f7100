"""``holdout datasets``: its list, and its check of a folder."""

import json
from pathlib import Path

import pytest
from PIL import Image
from support.commands import holdout_here, plain
from support.small_search import draw_folder
from support.trees import make_cub200

from trainables.data import DATASETS


def test_each_is_listed_with_publisher_layout_and_options() -> None:
    shown = plain(holdout_here("datasets").stdout)
    entries = json.loads(holdout_here("datasets", "--json").stdout)
    assert [entry["name"] for entry in entries] == list(DATASETS)
    for entry in entries:
        for text in (entry["summary"], entry["publisher"], *entry["layout"], *entry["options"]):
            assert plain(text) in shown
    (alone,) = json.loads(holdout_here("datasets", "inaturalist", "--json").stdout)
    assert alone["options"]["class_list"]["default"] is None


def test_a_part_is_counted_where_it_is_meant(tmp_path: Path) -> None:
    root = make_cub200(tmp_path)
    of_tree = ("datasets", "cub200", "--root", root, "--set", "subset=true")
    shown = plain(holdout_here(*of_tree).stdout)
    assert "cub200: a part of CUB-200-2011: 40 images" in shown
    assert "training half │ 4 │ 20" in shown
    found = json.loads(holdout_here(*of_tree, "--json").stdout)
    assert found.pop("name") == "cub200"
    assert found.pop("identity").startswith("a part of CUB-200-2011: 40 images, ")
    assert {part: (counts["classes"], counts["images"]) for part, counts in found.items()} == {
        "train_half": (4, 20), "train": (2, 10), "validation": (2, 10), "test": (4, 20),
    }  # fmt: skip
    drawn = json.loads(holdout_here("datasets", "glyphs", "--set", "num_classes=40", "--json").stdout)
    assert drawn["train_half"] == {"classes": 20, "images": 480}


@pytest.mark.parametrize("suffix", [".png", ".webp"])
def test_a_picture_shows_images_that_train_and_no_others(tmp_path: Path, suffix: str) -> None:
    """Each training image has its own colour, each test image is black."""
    folder, colours = tmp_path / "images", {}
    for number in range(20):
        for image in range(2):
            colour = (12 * number + 15, 100, 100 * image + 50) if number < 10 else (0, 0, 0)
            file = folder / f"class-{number:02d}" / f"{image}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (30 + number, 40), colour).save(file)
            colours[colour] = file
    picture = tmp_path / f"images{suffix}"
    done = holdout_here("datasets", "folder", "--root", folder, "--picture", picture)
    assert plain(done.stderr) == f"Wrote 20 of 20 images of the training half to {picture}."
    with Image.open(picture) as drawn:
        assert drawn.size == (8 * 132 - 4, 3 * 132 - 4)
        seen = {drawn.convert("RGB").getpixel((132 * (at % 8) + 64, 132 * (at // 8) + 64)) for at in range(24)}
    shown = {min(colours, key=lambda colour: sum(abs(a - b) for a, b in zip(colour, found))) for found in seen}
    assert shown == {colour for colour in colours if any(colour)} | ({(255, 255, 255)} & shown)
    if suffix == ".png":
        assert seen == {colour for colour in colours if any(colour)} | {(255, 255, 255)}


def test_a_picture_of_a_damaged_image_is_none(tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", images=4)
    (root / "class-00" / "03.png").write_bytes(b"garbage")
    (root / "class-15" / "00.png").write_bytes(b"garbage")  # a test class
    done = holdout_here("datasets", "folder", "--root", root, "--picture", tmp_path / "a.png", code=2)
    assert "1 of 32 images cannot be read: class-00/03.png" in plain(done.stderr)
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("cub200", "--root", "{root}"), "lacks classes.txt of CUB-200-2011. Give the folder that holds them"),
        (("cub200", "--root", "{root}", "--set", "subst=true"), "no such option (did you mean subset?)"),
        (("cub200", "--root", "{root}", "--set", "subset=7"), "subset: must be true or false; it is 7."),
        (("cub", "--root", "{root}"), "it is 'cub' (did you mean cub200?)"),
        (("--root", "{root}"), "--root, --set and --picture need the name of a data set"),
        (("glyphs", "--picture", "a.gif"), "must be one of .png, .webp; it is '.gif'."),
        (("glyphs", "--picture", "/dev/null/a.png"), "--picture /dev/null/a.png: it cannot be written"),
    ],
)
def test_mistakes_exit_with_2(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    make_cub200(tmp_path, classes_per_half=2, images_per_class=2)
    (tmp_path / "classes.txt").unlink()
    done = holdout_here("datasets", *(text.format(root=tmp_path) for text in arguments), code=2)
    assert expected in plain(done.stderr)
    assert not plain(done.stderr).startswith(":")
    assert done.stdout == ""


def test_images_that_look_damaged_are_told_of_each_half(tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", images=4)
    (root / "class-00" / "03.png").write_bytes((root / "class-00" / "03.png").read_bytes()[:-100])
    (root / "class-15" / "00.png").write_bytes(b"<html>404</html>")
    (root / "class-00" / "notes.txt").touch()
    done = holdout_here("datasets", "folder", "--root", root)
    assert "1 file without the suffix of an image (.txt 1)" in plain(done.stderr)
    assert plain(done.stderr).startswith(
        "1 of 32 images of training classes looks damaged: class-00/03.png (the file is cut off). "
        "1 of 32 images of test classes looks damaged: class-15/00.png (not an image of a known format)."
    )
    assert "test half │ 8 │ 32" in plain(done.stdout)
