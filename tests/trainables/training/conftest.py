"""Fixtures of small trainings."""

import pytest
from support.small_training import drawn_images

from trainables.data.store.store_spec import StoreSpec


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    return drawn_images(tmp_path_factory.mktemp("images"))
