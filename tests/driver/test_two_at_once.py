"""Two concurrent commands on the same search, file or ledger: no lost, torn or overwritten records; one driver."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from support.commands import holdout_here, refusal
from support.forks import forked
from support.kinds import Kinds
from support.refusals import contents

from search.config.initial_file import write_initial_file
from search.records.ledger import NAME, Ledger
from search.records.ledger_file import ImageSet
from search.records.runs import RunFolder
from trainables.common.errors import InvalidInput


def write_openings(parent: Connection, runs: Path, name: str) -> None:
    ledger = Ledger(runs / NAME)
    parent.send("ready")
    parent.recv()
    for number in range(8):
        search = f"{name}-{number}"
        opening = ledger.open(
            test_digest="t", search=search, selections={search: search}, configurations={search: 1}, studies={},
            reason="x" * 9000,
        )  # fmt: skip
        ledger.read(opening, ImageSet.of([["a"]]))


@pytest.fixture
def runs(kinds: Kinds) -> Path:
    return kinds("images").runs


def test_while_a_search_runs_others_read_it_and_none_writes(runs: Path) -> None:
    with RunFolder(runs, "small").only_driver():
        before, of_search = contents(runs), contents(runs / "small")
        for command, *options in (("sync",), ("select",), ("test",), ("remove", "--yes")):
            refused = refusal(command, "small", *options, "--runs", runs)
            assert "The search small is being run by process" in refused
        assert contents(runs) == before
        for arguments in (("status",), ("trials", "small"), ("trials", "small", "pnp", "0"), ("compare", "small")):
            holdout_here(*arguments, "--runs", runs)
        assert "verify it when that has ended" in refusal("verify", "small", "--runs", runs)
        assert contents(runs / "small") == of_search


def test_only_one_of_many_writers_creates_a_file(tmp_path: Path) -> None:
    for attempt in range(10):
        path = tmp_path / f"{attempt}.yaml"
        with ThreadPoolExecutor(4) as pool:
            writing = [pool.submit(write_initial_file, path, str(number) * 5000) for number in range(4)]
        refused = [error for writer in writing if (error := writer.exception())]
        assert len(refused) == 3
        assert all("already exists and is not overwritten" in str(error) for error in refused)
        (number,) = (number for number, writer in enumerate(writing) if not writer.exception())
        assert path.read_text() == str(number) * 5000


def test_no_line_of_the_ledger_is_torn_and_none_is_lost(tmp_path: Path, state: Path) -> None:
    """Three processes of one user write to two runs folders at once, with lines longer than a page."""
    writers = [forked(write_openings, tmp_path / ("one", "two")[number % 2], f"search-{number}") for number in range(3)]
    assert [connection.recv() for _, connection in writers] == ["ready"] * 3
    for _, connection in writers:
        connection.send("go")
    for process, _ in writers:
        process.join()
        assert process.exitcode == 0
    for runs in (tmp_path / "one", tmp_path / "two"):
        ledger = Ledger(runs / NAME)
        ledger.catch_up()
        assert not [*ledger.broken_links()]
    for file in (state / "holdout", tmp_path / "one", tmp_path / "two"):
        lines = [json.loads(line) for line in (file / NAME).read_text().splitlines()]
        assert len(lines) == 2 * 24
        assert len({line["search"] for line in lines if "search" in line}) == 24


# One driver for a search: the lock in the runs folder, and its clean-up after a refused driver.


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
