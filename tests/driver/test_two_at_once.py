"""Two concurrent commands on the same search, file or ledger: no lost, torn or overwritten records."""

import json
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from support.commands import holdout_here, refusal
from support.forks import forked
from support.kinds import Kinds
from support.refusals import contents

from search.config.initial_file import write_initial_file
from search.plan.runs import RunFolder
from search.selection.ledger import NAME, Ledger
from search.selection.ledger_file import ImageSet


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
    """Return the runs folder of a finished search."""
    return kinds("images").runs


@pytest.mark.parametrize(
    "arguments",
    [("sync", "small"), ("select", "small"), ("test", "small"), ("remove", "small", "--yes")],
    ids=lambda arguments: arguments[0],
)
def test_writing_commands_are_refused_while_a_search_runs(arguments: tuple[str, ...], runs: Path) -> None:
    before = contents(runs)
    with RunFolder(runs, "small").only_driver():
        refused = refusal(*arguments, "--runs", runs)
    assert "The search small is being run by process" in refused
    assert contents(runs) == before


def test_reading_commands_work_while_a_search_runs(runs: Path) -> None:
    before = contents(runs / "small")
    with RunFolder(runs, "small").only_driver():
        for arguments in (("status",), ("trials", "small"), ("trials", "small", "pnp", "0"), ("compare", "small")):
            holdout_here(*arguments, "--runs", runs)
        refused = refusal("verify", "small", "--runs", runs)
    assert "verify it when that has ended" in refused
    assert contents(runs / "small") == before


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
