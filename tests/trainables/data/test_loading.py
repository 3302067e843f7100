"""Prefetched batches equal those made on demand, and images in memory those of a store."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.image_stores import build_store
from support.small_search import draw_folder

from trainables.data.augment import AUGMENTATIONS, Frame
from trainables.data.loading import ImagesInMemory, load, one_ahead
from trainables.data.sets.folders import Folder
from trainables.data.store.view import Store, StoreView
from trainables.inference.images import decoded

CPU = torch.device("cpu")
BATCHES = torch.arange(40).split(7)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> StoreView:
    path = tmp_path_factory.mktemp("prefetch")
    dataset = Folder(root=str(draw_folder(path / "images", classes=8)))
    names = tuple(dataset.classes())
    return Store(build_store(dataset, names, short_side=24, cache=path / "cache")).subset(names)


def maker(view: StoreView, augmentation: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that loads batches with its own random generator."""
    generator = torch.Generator().manual_seed(5)
    return partial(
        load, view, augmentation=augmentation, frame=Frame(side=16, short_side=18), device=CPU, generator=generator
    )


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_batches_are_the_same_bit_for_bit(view: StoreView, augmentation: str) -> None:
    make = maker(view, augmentation)
    expected = [make(batch) for batch in BATCHES]
    ahead = list(one_ahead(BATCHES, maker(view, augmentation)))
    assert len(ahead) == len(expected) == 6
    assert all(torch.equal(found, batch) for found, batch in zip(ahead, expected))


def test_the_next_batch_is_made_while_one_is_used() -> None:
    made = [threading.Event() for _ in range(3)]

    def make(number: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        made[number].set()
        return number

    batches = one_ahead(range(3), make)
    assert next(batches) == 0
    assert made[1].wait(30), "not prefetched"
    assert not made[2].is_set(), "more than one prefetched"
    assert list(batches) == [1, 2]


def test_an_error_is_raised_with_its_batch() -> None:
    def make(number: int) -> int:
        if number == 1:
            raise ValueError("no batch 1")
        return number

    batches = one_ahead(range(3), make)
    assert next(batches) == 0
    with pytest.raises(ValueError, match="no batch 1"):
        next(batches)


# Images decoded once.

SHORT_SIDE = 18
SIZES = [(40, 30), (18, 18), (25, 50), (10, 12), (60, 19), (18, 44)]  # larger, equal, and smaller than the short side


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    generator = np.random.default_rng(0)
    (tmp_path / "images" / "all").mkdir(parents=True)
    files = [tmp_path / "images" / "all" / f"{number}.png" for number in range(len(SIZES))]
    for file, (height, width) in zip(files, SIZES, strict=True):
        Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file)
    return files


@pytest.fixture
def store(paths: list[Path], tmp_path: Path) -> Store:
    dataset = Folder(root=str(tmp_path / "images"))
    return Store(build_store(dataset, ["all"], short_side=SHORT_SIDE, cache=tmp_path / "cache"))


@pytest.mark.parametrize("augmentation", AUGMENTATIONS.rows)
def test_images_in_memory_are_cut_as_a_store_s(paths: list[Path], store: Store, augmentation: str) -> None:
    images = ImagesInMemory([decoded(path, SHORT_SIDE) for path in paths])
    assert len(images) == len(store)
    indices = torch.tensor([4, 0, 3, 2, 2])
    torch.testing.assert_close(images.sizes(indices), store.sizes_N2[indices])
    frame = Frame(side=16, short_side=SHORT_SIDE)
    crops = AUGMENTATIONS[augmentation](images.sizes(indices), frame, torch.Generator().manual_seed(0))
    pixels = images.gather(indices, crops.windows_B4)
    torch.testing.assert_close(pixels, store.gather(indices, crops.windows_B4), rtol=0, atol=0)
    whole = [decoded(paths[index], SHORT_SIDE) for index in indices.tolist()]
    for row, (top, left, tall, wide) in enumerate(crops.windows_B4.tolist()):
        expected = whole[row][top : top + tall, left : left + wide].transpose(1, 0, 2)
        np.testing.assert_array_equal(pixels[row, :wide, :tall].numpy(), expected)
