"""The readers of published data sets: listed images, refused trees, and subsets."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.refusals import sentences_of
from support.trees import WRITERS, make_published

from trainables.data import DATASETS
from trainables.data.sets.published import PublishedDataset

NAMES = [name for name, dataset in DATASETS.items() if issubclass(dataset, PublishedDataset)]
TEST_LISTS = {"small": "test_list_800", "medium": "test_list_1600", "large": "test_list_2400"}
LISTS = {
    "cub200": ("images.txt", "image_class_labels.txt", "classes.txt"),
    "cars196": ("cars_annos.mat",),
    "sop": ("Ebay_train.txt", "Ebay_test.txt"),
    "inshop": ("Eval/list_eval_partition.txt",),
    "vehicleid": tuple(f"train_test_split/{name}.txt" for name in ("train_list", *TEST_LISTS.values())),
    "inaturalist": ("train2018.json", "val2018.json"),
}
PUBLISHED = {  # (classes, images) of the training half and the test half
    "omniglot": ((964, 19_280), (659, 13_180)),
    "cub200": ((100, 5_864), (100, 5_924)),
    "cars196": ((98, 8_054), (98, 8_131)),
    "sop": ((11_318, 59_551), (11_316, 60_502)),
    "inshop": ((3_997, 25_882), (3_985, 26_830)),
    "vehicleid": ((13_164, 113_346), (800, 6_493), (800, 13_377 - 6_493), (800, 19_777 - 13_377)),
}


def written(name: str, root: Path, train: Sequence[int], test: Sequence[int]) -> dict[str, int]:
    """Write lists, and empty images since none is opened; return their paths and the numbers of their classes."""
    images = WRITERS[name](root, train, test)
    for path in map(root.joinpath, images):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return images


def tree(name: str, root: Path, classes_per_half: int = 4, images_per_class: int = 5) -> Path:
    written(name, root, *[[images_per_class] * classes_per_half] * 2)
    return root


def part(name: str, root: Path, **options: Any) -> PublishedDataset:
    dataset = DATASETS[name](root=str(root), subset=True, **options)
    assert isinstance(dataset, PublishedDataset)
    return dataset


def keys_of(dataset: PublishedDataset) -> list[str]:
    return [key for keys in dataset.classes().values() for key in keys]


of_each = pytest.mark.parametrize("name", NAMES)


@of_each
def test_classes_hold_the_images_that_were_written_and_no_image_is_opened(name: str, tmp_path: Path) -> None:
    expected: dict[int, set[str]] = {}
    for path, label in written(name, tmp_path, [3, 1, 4, 2], [2, 5, 1]).items():
        expected.setdefault(label, set()).add(path.removeprefix("omniglot-py/"))
    halved = name in ("cub200", "cars196")
    options = {"class_list": "training.txt"} if name == "inaturalist" else {}
    dataset = part(name, tmp_path, **options)
    assert [set(keys) for keys in dataset.classes().values()] == [expected[label] for label in range(7)]
    train, test = dataset.published_split()
    assert (*train, *test) == tuple(dataset.classes())
    assert len(train) == (3 if halved else 4)  # seven classes halved: three and four
    if name == "omniglot":
        assert all(keys[0].split("/")[1:3] == of.split("/") for of, keys in dataset.classes().items())


def test_missing_lists_are_all_named(tmp_path: Path) -> None:
    for name, lists in LISTS.items():
        root = tree(name, tmp_path / name)
        for number, path in enumerate(lists, start=1):
            (root / path).unlink()
            (sentence,) = sentences_of(part(name, root).classes)
            assert f"lacks {', '.join(lists[:number])} of " in sentence
    (sentence,) = sentences_of(part("omniglot", tmp_path).classes)
    assert "lacks images_background, images_evaluation of Omniglot" in sentence


def test_products_are_of_the_kinds_that_the_lists_say(tmp_path: Path) -> None:
    dataset = part("sop", tree("sop", tmp_path))
    lines = [line for path in LISTS["sop"] for line in (tmp_path / path).read_text().splitlines()[1:]]
    kinds = dict(line.split()[1:3] for line in lines)
    assert dataset.superclasses() == kinds
    assert set(kinds.values()) == {"1", "2"}
    for folder in ("bicycle", "lamp"):  # a kind is a folder as well
        of_folder = {name for name, keys in dataset.classes().items() if keys[0].startswith(folder)}
        assert len({kinds[name] for name in of_folder}) == 1

    shutil.rmtree(tmp_path / "lamp_final")
    assert set(dict(replace(dataset).superclasses())) == set(replace(dataset).classes()) < set(kinds)


@of_each
def test_missing_images_are_counted_or_left_out_of_a_subset(name: str, tmp_path: Path) -> None:
    root = tree(name, tmp_path)
    whole = part(name, root)
    inner = root / "omniglot-py" if name == "omniglot" else root
    kept, lost = list(whole.classes())[1], list(whole.classes())[2]
    absent = [whole.classes()[kept][0], *whole.classes()[lost]]
    for key in absent:
        (inner / key).unlink()

    dataset = part(name, root)
    assert keys_of(dataset) == [key for key in keys_of(whole) if key not in absent]
    assert lost not in dataset.classes()
    assert lost not in {name for half in dataset.published_split() for name in half}
    assert dataset.identity() != whole.identity()

    said = " ".join(sentences_of(replace(dataset, subset=False).classes))
    if name != "omniglot":  # Omniglot has no lists
        assert "6 of the 40 listed images" in said
        assert absent[0] in said
        assert "and 1 more" in said
    assert "subset to true" in said

    for key in keys_of(dataset):
        (inner / key).unlink()
    (sentence,) = sentences_of(replace(dataset).classes)
    assert ("has no image" if name == "omniglot" else "40 of the 40") in sentence


@pytest.mark.parametrize("name", ["cub200", "vehicleid"])  # the fastest to write
def test_the_published_counts_are_accepted(name: str, tmp_path: Path) -> None:
    (classes, images), *test = PUBLISHED[name]
    (sentence,) = sentences_of(DATASETS[name](root=make_published(name, tmp_path, (classes, images), *test)).classes)
    total = images + sum(number for _, number in test)
    assert f"{total:,} of the {total:,} listed images" in sentence  # the lists are accepted


@of_each
def test_wrong_counts_are_reported_together(name: str, tmp_path: Path) -> None:
    (sentence,) = sentences_of(DATASETS[name](root=tree(name, tmp_path)).classes)
    assert str(tmp_path) in sentence
    published = {
        "inaturalist": ["5,690", "2,452", "461,939"],
        "vehicleid": ["13,164", "113,346", "800", "6,493", "1,600", "13,377", "2,400", "19,777"],
    }
    for number in published.get(name) or [f"{number:,}" for half in PUBLISHED[name] for number in half]:
        assert number in sentence


def listed_vehicles(root: Path, name: str) -> dict[str, list[str]]:
    vehicles: dict[str, list[str]] = {}
    for line in (root / "train_test_split" / f"{TEST_LISTS[name]}.txt").read_text().splitlines():
        image, vehicle = line.split()
        vehicles.setdefault(vehicle, []).append(f"image/{image}.jpg")
    return vehicles


def test_vehicles_of_three_test_lists(tmp_path: Path) -> None:
    """Lists may overlap; the test classes are those of all three."""
    root = tree("vehicleid", tmp_path)
    medium = root / LISTS["vehicleid"][2]
    first, *_ = listed_vehicles(root, "medium")
    lines = [line for line in medium.read_text().splitlines() if line.split()[1] != first]
    medium.write_text("\n".join(lines))  # no longer nested
    dataset = part("vehicleid", root)
    expected = {name: listed_vehicles(root, name) for name in TEST_LISTS}
    train, test = dataset.published_split()
    assert (len(train), [len(vehicles) for vehicles in expected.values()]) == (4, [2, 2, 4])
    assert set(test) == {vehicle for vehicles in expected.values() for vehicle in vehicles}
    assert dataset.test_subsets() == {name: tuple(vehicles) for name, vehicles in expected.items()}
    for vehicles in expected.values():
        assert all(list(dataset.classes()[vehicle]) == keys for vehicle, keys in vehicles.items())

    small = expected.pop("small")
    for key in (key for keys in small.values() for key in keys):
        (root / key).unlink()
    assert replace(dataset).test_subsets() == {
        name: tuple(vehicle for vehicle in vehicles if vehicle not in small) for name, vehicles in expected.items()
    }


def test_species_are_split_by_a_hash_or_by_a_list_of_categories_or_images(tmp_path: Path) -> None:
    root = tree("inaturalist", tmp_path / "by hash", classes_per_half=10, images_per_class=2)
    expected = sorted(range(20), key=lambda label: hashlib.sha256(f"inaturalist:{label}".encode()).hexdigest())[:13]
    assert part("inaturalist", root).published_split()[0] == tuple(map(str, sorted(expected)))

    root = tree("inaturalist", tmp_path / "root")
    for lines in (["2", "0", "5"], ["Aves/2", "x/Plantae/0/a.jpg", "", "x/Plantae/0/b.JPG", "5"]):
        for path in (tmp_path / "list.txt", root / "list.txt"):
            path.write_text("\r\n".join(lines))
            dataset = part("inaturalist", root, class_list=path.name if path.parent == root else str(path))
            assert dataset.published_split() == (("0", "2", "5"), ("1", "3", "4", "6", "7"))
