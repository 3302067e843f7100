"""Small versions of the papers' data sets, in the published layout.

The trees are smaller than the published data sets, so they are read with ``subset=True``.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.io import savemat

from search.config.recipes import read_file, read_search, recipes
from search.config.search_config import SearchConfig, parse_config
from search.config.yaml_file import read_yaml
from search.records.campaign import Campaign, parse_campaign

Trees = Callable[[str], Path]  # the name of a data set → the folder of a small one
Lists = dict[str, int]  # image path below the root → class number from 0, training classes first
Sizes = Sequence[int]  # number of images in each class


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def _images(train: Sizes, test: Sizes) -> list[tuple[int, int]]:
    """Return the class and the number within it of each image."""
    return [(label, number) for label, size in enumerate([*train, *test]) for number in range(size)]


def _cub200(root: Path, train: Sizes, test: Sizes) -> Lists:
    names = [f"{label + 1:03d}.Bird_{label + 1}" for label in range(len(train) + len(test))]
    images = [
        (f"{names[label]}/Bird_{label + 1}_{number + 1:04d}_{17 * number}.jpg", label)
        for label, number in _images(train, test)
    ]
    _write(root / "classes.txt", [f"{label} {name}" for label, name in enumerate(names, start=1)])
    _write(root / "images.txt", [f"{image} {path}" for image, (path, _) in enumerate(images, start=1)])
    labels = [f"{image} {label + 1}" for image, (_, label) in enumerate(images, start=1)]
    _write(root / "image_class_labels.txt", labels)
    return {f"images/{path}": label for path, label in images}


def _cars196(root: Path, train: Sizes, test: Sizes) -> Lists:
    labels = [label for label, _ in _images(train, test)]
    paths = [f"car_ims/{image:06d}.jpg" for image in range(1, len(labels) + 1)]
    sides = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
    record = np.dtype([(name, object) for name in ("relative_im_path", *sides, "class", "test")])
    annotations = np.empty((1, len(labels)), dtype=record)
    for image, (path, label) in enumerate(zip(paths, labels, strict=True)):
        annotations[0, image] = (path, 1, 2, 30, 20, np.uint8(label + 1), np.uint8(image % 2))
    class_names = np.empty((1, len(train) + len(test)), dtype=object)
    class_names[0] = [f"Maker Model C/V {label} Coupe 2012" for label in range(class_names.size)]
    root.mkdir(parents=True, exist_ok=True)
    savemat(root / "cars_annos.mat", {"annotations": annotations, "class_names": class_names})
    return dict(zip(paths, labels, strict=True))


def _sop(root: Path, train: Sizes, test: Sizes) -> Lists:
    images = {
        f"{('bicycle', 'lamp')[label % 2]}_final/{11_000_000 + label}_{number}.JPG": label
        for label, number in _images(train, test)
    }
    rows = [
        (label, f"{image} {label + 1} {label % 2 + 1} {path}")
        for image, (path, label) in enumerate(images.items(), start=1)
    ]
    heading = "image_id class_id super_class_id path"
    _write(root / "Ebay_train.txt", [heading, *(row for label, row in rows if label < len(train))])
    _write(root / "Ebay_test.txt", [heading, *(row for label, row in rows if label >= len(train))])
    return images


def _inshop(root: Path, train: Sizes, test: Sizes) -> Lists:
    """Spread the queries and the gallery over the test images in the published proportion of 14,218 and 12,612."""
    images, lines, tested = {}, [], 0
    for label, number in _images(train, test):
        item = f"id_{label + 1:08d}"
        path = f"img/{('MEN/Denim', 'WOMEN/Dresses')[label % 2]}/{item}/{number + 1:02d}_1_front.jpg"
        part = "train"
        if label >= len(train):
            tested += 1
            part = "gallery" if tested * 12_612 // 26_830 > (tested - 1) * 12_612 // 26_830 else "query"
        lines.append(f"{path:<80}{item:<14}{part}")
        images[f"Img/{path}"] = label
    heading = "image_name item_id evaluation_status"
    _write(root / "Eval" / "list_eval_partition.txt", [str(len(images)), heading, *lines])
    (root / "Img").mkdir(exist_ok=True)
    return images


def _vehicleid(root: Path, train: Sizes, test: Sizes) -> Lists:
    """Write nested test lists: a third (at least 2), two thirds (at least 3) and all of the test vehicles."""
    rows = [
        (label, f"{7_000 + image:07d}", f"{100 + 3 * label}") for image, (label, _) in enumerate(_images(train, test))
    ]
    first, second = max(2, len(test) // 3), max(3, 2 * len(test) // 3)
    ends = {"test_list_800": first, "test_list_1600": second, "test_list_2400": len(test)}
    ranges = {"train_list": range(len(train))} | {
        name: range(len(train), len(train) + end) for name, end in ends.items()
    }
    for name, labels in ranges.items():
        lines = [f"{image} {vehicle}" for label, image, vehicle in rows if label in labels]
        _write(root / "train_test_split" / f"{name}.txt", lines)
    return {f"image/{image}.jpg": label for label, image, _ in rows}


def _inaturalist(root: Path, train: Sizes, test: Sizes) -> Lists:
    """Put the first image of each category in ``val2018``; list the training images in ``training.txt``."""
    kinds = ("Plantae", "Aves", "Insecta")
    images = [
        (image, f"train_val2018/{kinds[label % 3]}/{label}/{image:032x}.jpg", label, number)
        for image, (label, number) in enumerate(_images(train, test), start=1)
    ]
    categories = [
        {"id": label, "name": str(label), "supercategory": kinds[label % 3]} for label in range(len(train) + len(test))
    ]
    for name, is_part in {"train2018": lambda number: number > 0, "val2018": lambda number: number == 0}.items():
        part = [entry for entry in images if is_part(entry[3])]
        content = {
            "info": {"year": 2018},
            "images": [{"id": image, "file_name": path, "width": 800, "height": 600} for image, path, _, _ in part],
            "categories": categories,
            "annotations": [{"id": image, "image_id": image, "category_id": label} for image, _, label, _ in part],
        }
        root.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.json").write_text(json.dumps(content))
    _write(root / "training.txt", [path for _, path, label, _ in images if label < len(train)])
    return {path: label for _, path, label, _ in images}


def _omniglot(root: Path, train: Sizes, test: Sizes) -> Lists:
    images = {}
    for label, number in _images(train, test):
        half, number = ("background", label) if label < len(train) else ("evaluation", label - len(train))
        folder = f"images_{half}/{half.title()}_{number // 3}/character{number % 3 + 1:02d}"
        images[f"omniglot-py/{folder}/{label + 1:04d}_{number + 1:02d}.png"] = label
    return images


WRITERS: dict[str, Callable[[Path, Sizes, Sizes], Lists]] = {
    "omniglot": _omniglot,
    "cub200": _cub200,
    "cars196": _cars196,
    "sop": _sop,
    "inshop": _inshop,
    "vehicleid": _vehicleid,
    "inaturalist": _inaturalist,
}


def _draw(path: Path, label: int, generator: np.random.Generator) -> None:
    """Write an image with sides of 16 to 40 pixels, in the colour of its class."""
    colour = np.random.default_rng(label).integers(0, 256, 3)
    height, width = generator.integers(16, 41, 2)
    pixels = np.clip(colour + generator.normal(0, 40, (height, width, 3)), 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def make_tree(name: str, root: Path, classes_per_half: int = 4, images_per_class: int = 5) -> Path:
    sizes = [images_per_class] * classes_per_half
    generator = np.random.default_rng(0)
    for path, label in WRITERS[name](root, sizes, sizes).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        _draw(root / path, label, generator)
    return root


def make_published(name: str, root: Path, train: tuple[int, int], *test: tuple[int, int]) -> Path:
    """Write lists with the given (classes, images) in each half, and no images.

    Several groups of test classes, as for VehicleID's lists, have separate numbers of images.
    """

    def spread(classes: int, images: int) -> list[int]:
        return [images // classes + (label < images % classes) for label in range(classes)]

    WRITERS[name](root, spread(*train), [size for group in test for size in spread(*group)])
    return root


def on_tree(trees: Trees, name: str) -> dict[str, Any]:
    """Return what a ``dataset`` section adds for a small tree of the data set ``name``."""
    return {"root": str(trees(name)), "subset": True}


def shipped_file(name: str, trees: Trees) -> dict[str, Any]:
    """Return a shipped campaign file on small trees of its recipes' data sets."""

    def of_recipe(recipe: str) -> dict[str, Any]:
        return on_tree(trees, read_yaml(recipes()[recipe])["dataset"]["name"])

    content = read_file(Path(name))
    if "recipe" in content:
        content["base"]["dataset"] = of_recipe(content["recipe"])
    for labels in content["vary"].values():
        for settings in labels.values():
            if "recipe" in settings:
                settings["dataset"] = of_recipe(settings["recipe"])
    return content


def shipped_campaign(name: str, trees: Trees) -> Campaign:
    return parse_campaign(shipped_file(name, trees))


def recipe_on(trees: Trees, name: str) -> SearchConfig:
    content = read_search(Path(name))
    return parse_config({**content, "dataset": content["dataset"] | on_tree(trees, content["dataset"]["name"])})


def varied_on(trees: Trees, name: str) -> list[SearchConfig]:
    return [*shipped_campaign(name, trees).searches]
