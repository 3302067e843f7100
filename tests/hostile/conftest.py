"""A finished search, and files of every kind that commands read, which the tests of this folder change."""

from pathlib import Path

import pytest
from support.tampered import Copied

from hostile.world import World, make_origin


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return the world that is attacked, not to be changed; nothing listens in it."""
    world = World(tmp_path_factory.mktemp("world"))
    make_origin(world.origin)
    world.restore_victim()
    world.secret.parent.mkdir()
    world.secret.write_text(world.secret_word)
    return world


@pytest.fixture
def copied(world: World, tmp_path: Path) -> Copied:
    """Return a copy of its search."""
    return Copied(world.origin / "runs", tmp_path / "runs")
