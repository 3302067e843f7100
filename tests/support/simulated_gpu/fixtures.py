"""A small folder of images, and checks around each test on the simulated GPU."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.simulated_gpu.streams import FREED_TOO_EARLY, STATE

from trainables.data.sets.folders import Folder
from trainables.data.store import view
from trainables.data.store.spec import StoreSpec


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    """Return six classes of ten images of several sizes, each class with its own colour."""
    path = tmp_path_factory.mktemp("simulated")
    random = np.random.default_rng(0)
    for number in range(60):
        pixels = random.integers(0, 128, (*random.integers(36, 50, 2), 3)) + random.permutation([0, 60, 127])
        file = path / "images" / f"class-{number % 6}" / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(file)
    dataset = Folder(root=str(path / "images"))
    return StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=36, cache=str(path / "cache"))


@pytest.fixture(autouse=True)
def nothing_is_freed_too_early() -> Iterator[None]:
    """Remove what an earlier test left, and look at the memory at the end."""
    view._resident.clear()
    FREED_TOO_EARLY.clear()
    yield
    assert not FREED_TOO_EARLY, "memory was freed while another stream could still use it"


@pytest.fixture
def gpu_of() -> Iterator[Any]:
    """Return a function that changes the simulated GPU for the rest of the test."""
    before = dict(vars(STATE))

    def change(**changes: Any) -> None:
        vars(STATE).update(changes)

    yield change
    vars(STATE).update({name: before[name] for name in ("limit", "capability", "devices", "debug")})
