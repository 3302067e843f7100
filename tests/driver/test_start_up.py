"""The start of a search: its images are kept while its engine runs, and those that cannot be read end the engine."""

import io
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from support.small_search import draw_folder, small_search
from support.without_ray import MadeUp

from search.config.search_config import parse_config
from search.config.sections import ResourcesSection
from search.driver.make_plan import make_plan
from search.driver.pipeline import get_ready
from trainables.common.errors import InvalidInput
from trainables.data.store.cache import is_used


class Noting(MadeUp):
    """An engine that notes its start and its end."""

    def __init__(self) -> None:
        super().__init__(ResourcesSection())
        self.order: list[str] = []

    @contextmanager
    def session(self) -> Iterator[None]:
        self.order.append("started")
        try:
            yield
        finally:
            self.order.append("ended")

    def load(self) -> None:
        time.sleep(0.5 * self.images_first)
        self.order += ["loaded"] * self.images_first  # else it may be loaded before or after the start


def test_images_are_kept_until_the_engine_ends_and_bad_ones_end_it(tmp_path: Path) -> None:
    plan = make_plan(parse_config(small_search(root := draw_folder(tmp_path / "images"))), tmp_path / "runs")
    engine, console = Noting(), Console(file=io.StringIO())
    with ExitStack() as stack:
        assert get_ready([plan], engine, console, stack) == 1
        assert is_used(store := plan.images.make())
    assert not is_used(store)
    engine.images_first = True
    with ExitStack() as stack:
        get_ready([plan], engine, console, stack)
    assert engine.order == ["started", "ended", "loaded", "started", "ended"]
    engine.images_first = False
    (root / plan.split.train[0] / "00.png").write_bytes(b"no image")
    with pytest.raises(InvalidInput, match="1 of 80 images cannot be read"), ExitStack() as stack:
        get_ready([plan], engine, console, stack)
    assert engine.order[5:] == ["started", "ended"]
