"""Fixtures of small trainings."""

from collections.abc import Iterator

import pytest
from support.small_training import drawn_images
from support.stacks import float64

from trainables.data.store.spec import StoreSpec


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    """Six classes of noise images."""
    return drawn_images(tmp_path_factory.mktemp("images"))


@pytest.fixture
def exact() -> Iterator[None]:
    """Train in float64, in which a stack and single trainings hardly differ."""
    with float64():
        yield
