"""How often a choice ended below its default on the test classes, over the searches of a runs folder."""

from pathlib import Path

import pytest
from support.commands import holdout_here, plain
from support.made_search import made_search

from search.report.summary_file import overtuning_sentence

KNOWN = "(about 10 % in published searches, arXiv 2506.19540)"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two searches of three tuned losses, one of which ended below its default, and one before its test."""
    made_search(tmp_path, "first", {"pnp": (0.5, 0.6), "mpa": (0.5, 0.4)})
    made_search(tmp_path, "second", {"pnp": (0.5, 0.5)})
    made_search(tmp_path, "sealed", {"pnp": (0.5, 0.4)}, tested=False)
    return tmp_path


def test_the_choices_below_their_default_are_counted(runs: Path) -> None:
    told = f"Of 3 tested choices in this runs folder, 1 ended below the default on test classes {KNOWN}."
    assert overtuning_sentence(runs) == told
    assert told in plain(holdout_here("status", "--runs", runs).stdout)
    assert told not in plain(holdout_here("status", "first", "--runs", runs).stdout)


def test_a_search_that_cannot_be_read_is_left_out(runs: Path) -> None:
    (runs / "first/summary.json").write_text("{")
    assert overtuning_sentence(runs) == (
        f"Of 1 tested choice in this runs folder, none ended below the default on test classes {KNOWN}."
    )


def test_nothing_is_said_without_a_test(tmp_path: Path) -> None:
    assert overtuning_sentence(tmp_path) is None
    made_search(tmp_path, "sealed", {"pnp": (0.5, 0.4)}, tested=False)
    assert overtuning_sentence(tmp_path) is None
