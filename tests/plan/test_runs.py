"""One driver per search: the lock in the runs folder, and its clean-up after a refused driver."""

import os
import threading
from pathlib import Path

import pytest

from search.records.runs import RunFolder
from trainables.common.errors import InvalidInput


def _refused(*searches: RunFolder) -> None:
    """Hold ``searches`` and be refused by another process."""
    first, *others = searches
    with first.only_driver():
        if not others:
            raise InvalidInput("no.")
        _refused(*others)


def test_a_refused_driver_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no"):
        _refused(RunFolder(tmp_path / "a" / "runs", "birds"), RunFolder(tmp_path / "a" / "runs", "cars"))
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(InvalidInput, match="no"):
        _refused(RunFolder(tmp_path / "mine", "birds"))
    assert [*(tmp_path / "mine").iterdir()] == []


def test_a_campaign_that_a_driver_of_one_search_refuses_leaves_that_search_alone(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "cars").only_driver():
        (tmp_path / "cars" / "search.yaml").touch()
        with pytest.raises(InvalidInput, match=f"The search cars is being run by process {os.getpid()}"):
            _refused(RunFolder(tmp_path, "birds"), RunFolder(tmp_path, "cars"))
        assert [path.name for path in tmp_path.iterdir()] == ["cars"]
    assert {path.name for path in (tmp_path / "cars").iterdir()} == {"search.yaml", ".driver.lock"}


def test_who_comes_while_a_refused_driver_tidies_up_is_still_the_only_one(tmp_path: Path) -> None:
    """The lock's file is removed while it is held, and a lock on a removed file does not count."""
    (tmp_path / "birds").mkdir()
    inside, most = 0, 0
    counting = threading.Lock()

    def hold() -> None:
        nonlocal inside, most
        for _ in range(80):
            try:
                with RunFolder(tmp_path, "birds").only_driver():
                    with counting:
                        inside += 1
                        most = max(most, inside)
                    with counting:
                        inside -= 1
            except InvalidInput:
                pass

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
