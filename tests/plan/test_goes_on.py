"""What may change when a search goes on, and what is said of it."""

import gc
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from search.plan.resume import read_plan, reopened
from search.plan.search import is_finished, open_search
from trainables.mistakes import Mistakes

SearchFile = Callable[..., dict[str, Any]]


@pytest.fixture
def runs(search_file: SearchFile, tmp_path: Path) -> Path:
    """A runs folder with the search ``small``, which was extended to 8 trials."""
    folder = tmp_path / "runs"
    open_search(read_plan(search_file(search={"trials": 6}), folder))
    open_search(read_plan(search_file(search={"trials": 8}), folder))
    return folder


@pytest.mark.parametrize("chosen", [False, True])
def test_the_file_it_began_with_goes_on_with_an_extended_search(
    search_file: SearchFile, runs: Path, chosen: bool
) -> None:
    if chosen:
        (runs / "small" / "selection.json").write_text("{}")
    plan = read_plan(search_file(search={"trials": 6}), runs)
    assert plan.config.search.trials == 8
    assert plan.notices == ("search.trials: the file says 6, and small was extended to 8; it goes on with 8.",)


def test_more_trials_are_taken_until_something_is_chosen(search_file: SearchFile, runs: Path) -> None:
    assert read_plan(search_file(search={"trials": 9}), runs).config.search.trials == 9
    assert not read_plan(search_file(search={"trials": 9}), runs).notices
    (runs / "small" / "selection.json").write_text("{}")
    with pytest.raises(Mistakes, match="are chosen already, after 8 trials; more trials need a new name"):
        read_plan(search_file(search={"trials": 9}), runs)


def test_what_differs_is_said_with_all_other_mistakes(search_file: SearchFile, runs: Path) -> None:
    content = search_file(
        search={"trials": 8, "seed": 1}, final={"seeds": "5"}, losses=["pnp"], training={"batch_size": 100000}
    )
    with pytest.raises(Mistakes) as caught:
        read_plan(content, runs)
    starts = {sentence.split(":")[0] for sentence in caught.value.sentences}
    assert {"search.seed", "final.seeds", "losses", "training", "training.batch_size"} <= starts
    assert not any("final.seeds: the search" in sentence for sentence in caught.value.sentences)


def test_what_does_not_change_results_may_change(search_file: SearchFile, runs: Path) -> None:
    content = search_file(search={"trials": 8}, resources={"cpus_per_trial": 0.5}, stages=["search"])
    assert read_plan(content, runs).config.stages == ("search",)


def test_a_stored_search_is_reopened_by_its_name(runs: Path) -> None:
    assert reopened(runs, "small").config.search.trials == 8
    with pytest.raises(Mistakes, match=r"There is no search 'smal' in .* \(did you mean small\?\)"):
        reopened(runs, "smal")


def test_a_driver_that_goes_on_leaves_one_file_of_its_studies(search_file: SearchFile, tmp_path: Path) -> None:
    """What looks whether a search is finished lets go of the database; found by `make soak`."""
    runs, content = tmp_path / "runs", search_file(search={"trials": 6})
    open_search(read_plan(content, runs)).close()
    gc.disable()  # a long search's driver comes to collect what is left of a connection late, or never
    try:
        for _ in range(2):
            with closing(sqlite3.connect(runs / "small" / "study.db")) as left_by_a_driver_that_was_killed:
                left_by_a_driver_that_was_killed.execute("PRAGMA journal_mode=WAL")
            plan = read_plan(content, runs)
            assert not is_finished(plan)
            open_search(plan).close()
            assert sorted(path.name for path in (runs / "small").glob("study.db*")) == ["study.db"]
    finally:
        gc.enable()
