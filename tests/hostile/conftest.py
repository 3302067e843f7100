"""A finished search, and files of every kind that commands read, which the tests of this folder change."""

from collections.abc import Iterator

import pytest
from support.listening import listening

from hostile.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield the world that is attacked, not to be changed."""
    with listening() as (port, heard):
        world = World(tmp_path_factory.mktemp("world"), port, heard)
        world.begin()
        yield world
