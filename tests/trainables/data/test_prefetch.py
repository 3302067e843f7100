"""Prefetched batches equal those made on demand."""

import threading
from collections.abc import Callable
from functools import partial

import pytest
import torch
from support.small_search import draw_folder

from trainables.data.augment import AUGMENTATIONS, Frame
from trainables.data.loading import load, one_ahead
from trainables.data.sets.folders import Folder
from trainables.data.store.build import build_store
from trainables.data.store.view import Store, StoreView

CPU = torch.device("cpu")
BATCHES = torch.arange(40).split(7)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> StoreView:
    path = tmp_path_factory.mktemp("prefetch")
    dataset = Folder(root=str(draw_folder(path / "images", classes=8)))
    names = tuple(dataset.classes())
    return Store.open(build_store(dataset, names, short_side=24, cache=path / "cache", workers=1)).subset(names)


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
