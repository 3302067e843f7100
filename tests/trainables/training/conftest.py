"""Fixtures of small trainings."""

from collections.abc import Iterator

import pytest
from support.exact_training import float64
from support.small_training import drawn_images

from trainables.data.store.spec import StoreSpec


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    return drawn_images(tmp_path_factory.mktemp("images"))


@pytest.fixture
def exact() -> Iterator[None]:
    """Train in float64, so that differences are errors and not rounding."""
    with float64():
        yield
