"""The start of a search: images are decoded while its engine starts, and each phase is printed."""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from rich.console import Console
from support.kinds import on_features, trade
from support.small_search import draw_folder, small_search
from support.without_ray import MadeUp

from search.config.search_config import parse_config
from search.config.sections import ResourcesSection
from search.driver.listeners import Phases
from search.driver.make_plan import make_plan
from search.driver.pipeline import get_ready
from search.engines.base import Engine
from search.records.plan import Plan
from trainables.common.errors import InvalidInput
from trainables.data.store.cache import is_used


@pytest.fixture
def order() -> list[str]:
    """What happens during a start, in order."""
    return []


@pytest.fixture
def loaded() -> Event:
    """Set once everything is imported, which a session that opens meanwhile waits for."""
    return Event()


@pytest.fixture
def engine(order: list[str], loaded: Event) -> Engine:
    """An engine with a slot that notes when its session opens and ends."""

    class Noting(MadeUp):
        title = "Ray"

        @contextmanager
        def session(self) -> Iterator[None]:
            if not self.images_first:
                loaded.wait(60)
            order.append("Ray is there")
            try:
                yield
            finally:
                order.append("Ray is gone")

        def load(self) -> None:
            time.sleep(0.5 if self.images_first else 0)
            order.append("loaded")
            loaded.set()

    return Noting(ResourcesSection())


@pytest.fixture
def planned(tmp_path: Path) -> Callable[[Path], Plan]:
    return lambda root: make_plan(parse_config(small_search(root)), tmp_path / "runs")


@contextmanager
def started(plan: Plan, engine: Engine) -> Iterator[list[str]]:
    """Start a search in a slot; yield the lines that are printed."""
    console = Console(file=(out := io.StringIO()), width=200)
    with ExitStack() as stack:
        assert get_ready([plan], engine, console, Phases(console, time.time()), stack) == 1
        yield out.getvalue().splitlines()


def test_images_are_decoded_while_ray_starts(
    engine: Engine, order: list[str], planned: Callable[[Path], Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(draw_folder(tmp_path / "images"))
    held = type(plan.images).held
    monkeypatch.setattr(type(plan.images), "held", lambda *given: (order.append("images"), held(*given))[1])
    with started(plan, engine) as (begun, ready):
        store = plan.images.make()
        assert is_used(store)
    assert store.is_dir()
    assert not is_used(store)
    assert order == ["images", "loaded", "Ray is there", "images", "Ray is gone"]
    assert begun == "Reading images and starting Ray …"
    assert ready.startswith("Images and Ray are ready after ")


@pytest.mark.parametrize(("search", "noun"), [(on_features, "vectors"), (lambda _: trade("x", {}), "items")])
def test_what_is_read_is_named(
    engine: Engine, search: Callable[[Path], dict[str, Any]], noun: str, tmp_path: Path
) -> None:
    with started(make_plan(parse_config(search(tmp_path)), tmp_path / "runs"), engine) as (begun, ready):
        assert begun == f"Reading {noun} and starting Ray …"
        assert ready.startswith(f"{noun.capitalize()} and Ray are ready after ")


def test_images_that_cannot_be_read_end_ray_or_come_first(
    engine: Engine, order: list[str], loaded: Event, planned: Callable[[Path], Plan], tmp_path: Path
) -> None:
    loaded.set()  # it never is
    root = draw_folder(tmp_path / "images")
    plan = planned(root)
    image = root / plan.split.train[0] / "00.png"
    whole = image.read_bytes()
    image.write_bytes(b"no image")
    with pytest.raises(InvalidInput, match="1 of 80 images cannot be read"), started(plan, engine):
        pass
    assert order == ["Ray is there", "Ray is gone"]
    image.write_bytes(whole)
    order.clear()
    engine.images_first = True  # then everything is imported before the session
    with started(plan, engine):
        pass
    assert order == ["loaded", "Ray is there", "Ray is gone"]
