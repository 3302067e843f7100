"""The half of the training images that joins the validation gallery."""

import hashlib
from pathlib import Path

import pytest
from support.small_training import drawn_images

from trainables.data.store.spec import StoreSpec
from trainables.data.store.view import training_half


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    return drawn_images(tmp_path_factory.mktemp("half"))


def expected(images: StoreSpec, names: tuple[str, ...], seed: int) -> set[str]:
    """Return the first half of each class in the order of the hashes."""
    found: set[str] = set()
    for name, keys in images.dataset.classes().items():
        if name in names:
            in_order = sorted(keys, key=lambda key: hashlib.sha256(f"{seed}:{key}".encode()).hexdigest())
            found |= {key for rank, key in enumerate(in_order) if 2 * rank < len(keys)}
    return found


@pytest.mark.parametrize("seed", [0, 5])
def test_it_is_the_half_of_every_class_with_the_lowest_hashes(images: StoreSpec, seed: int) -> None:
    names = images.class_names[1:5]
    view = images.open().subset(names)
    half = training_half(view, seed)
    assert set(half.image_keys) == expected(images, names, seed)
    label_of = dict(zip(view.image_keys, view.labels_N.tolist(), strict=True))
    assert half.labels_N.tolist() == [label_of[key] for key in half.image_keys]


def test_other_seeds_draw_another_half_and_fewer_classes_a_part_of_it(images: StoreSpec) -> None:
    store, names = images.open(), images.class_names
    whole = set(training_half(store.subset(names), 0).image_keys)
    assert whole != set(training_half(store.subset(names), 1).image_keys)
    assert set(training_half(store.subset(names[2:4]), 0).image_keys) < whole


def test_a_class_of_odd_size_gives_the_larger_half(tmp_path: Path) -> None:
    images = drawn_images(tmp_path)
    sizes = {name: len(keys) for name, keys in images.dataset.classes().items()}
    half = training_half(images.open().subset(images.class_names), 0)
    assert half.labels_N.bincount().tolist() == [(size + 1) // 2 for size in sizes.values()]
