"""The start of a search: images are decoded while its engine starts, and the phase is printed."""

import io
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest
from rich.console import Console
from support.small_search import draw_folder, small_search
from support.without_ray import MadeUp

from search.config.search_config import parse_config
from search.config.sections import ResourcesSection
from search.driver.make_plan import make_plan
from search.driver.pipeline import get_ready
from search.records.plan import Plan
from trainables.common.errors import InvalidInput
from trainables.data.store.cache import is_used


class Noting(MadeUp):
    """An engine with a slot that notes what happens during a start, in order."""

    title = "Ray"

    def __init__(self) -> None:
        super().__init__(ResourcesSection())
        self.order: list[str] = []
        self.loaded = Event()  # a session that opens meanwhile waits until everything is imported

    @contextmanager
    def session(self) -> Iterator[None]:
        if not self.images_first:
            self.loaded.wait(60)
        self.order.append("Ray is there")
        try:
            yield
        finally:
            self.order.append("Ray is gone")

    def load(self) -> None:
        time.sleep(0.5 if self.images_first else 0)
        self.order.append("loaded")
        self.loaded.set()


@contextmanager
def started(plan: Plan, engine: Noting) -> Iterator[str]:
    """Start a search in a slot; yield what is printed."""
    console = Console(file=(out := io.StringIO()), width=200)
    with ExitStack() as stack:
        assert get_ready([plan], engine, console, stack) == 1
        yield out.getvalue()


def test_images_are_decoded_while_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(parse_config(small_search(draw_folder(tmp_path / "images"))), tmp_path / "runs")
    engine, held = Noting(), type(plan.images).held
    monkeypatch.setattr(type(plan.images), "held", lambda *given: (engine.order.append("images"), held(*given))[1])
    with started(plan, engine) as said:
        store = plan.images.make()
        assert is_used(store)
    assert store.is_dir()
    assert not is_used(store)
    assert engine.order == ["images", "loaded", "Ray is there", "images", "Ray is gone"]
    assert said == "Reading images and starting Ray …\n"


def test_images_that_cannot_be_read_end_ray_or_come_first(tmp_path: Path) -> None:
    (engine := Noting()).loaded.set()  # it never is
    plan = make_plan(parse_config(small_search(root := draw_folder(tmp_path / "images"))), tmp_path / "runs")
    image = root / plan.split.train[0] / "00.png"
    whole = image.read_bytes()
    image.write_bytes(b"no image")
    with pytest.raises(InvalidInput, match="1 of 80 images cannot be read"), started(plan, engine):
        pass
    assert engine.order == ["Ray is there", "Ray is gone"]
    image.write_bytes(whole)
    engine.order.clear()
    engine.images_first = True  # then everything is imported before the session
    with started(plan, engine):
        pass
    assert engine.order == ["loaded", "Ray is there", "Ray is gone"]
