"""Two searches at the same time on one cluster: both go on, each with half of the slots."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services import ray_nodes
from support.sleeping_search import SleepingSearch

from benchmarks.slots import SECONDS

pytestmark = pytest.mark.cluster

SLOTS = 4
EPOCH_S = 0.5


@pytest.fixture
def on_slots(tmp_path: Path) -> Iterator[None]:
    """A Ray of few slots, which drivers find."""
    with (
        ray_nodes(tmp_path / "auth_token", cpus=SLOTS, **{SECONDS: str(EPOCH_S)}) as nodes,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_ADDRESS", nodes.gcs_address)
        yield


@pytest.mark.usefixtures("on_slots")
def test_neither_search_starves(tmp_path: Path) -> None:
    """The first has every slot when the second begins, and more to do than it; no slot is left to chance."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = SleepingSearch(tmp_path / "first", trials=80, epochs=8)
    second = SleepingSearch(tmp_path / "second", trials=16, epochs=8)
    driver = first.start()
    first.until(lambda: len({trial for trial, _, _ in first.reports()}) >= SLOTS, driver)
    other = second.start()
    second.until(lambda: len({trial for trial, _, _ in second.reports()}) >= SLOTS // 2, other)
    assert driver.poll() is None, "the first one has ended"
    assert len(first.running()) <= SLOTS // 2
    shared = f"2 searches share this cluster: {SLOTS // 2} of {SLOTS} workers each."
    assert shared in " ".join(first.said().split())
    assert shared in " ".join(second.said().split())
    second.finish(other)
    assert driver.poll() is None, "the first one has ended"
    first.until(lambda: len(first.running()) == SLOTS, driver)
    assert f"all {SLOTS} workers are free" in " ".join(first.said().split())
    first.finish(driver)
