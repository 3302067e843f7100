"""Changes of the search file when a search is resumed, and the messages about them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.refusals import sentences_of

from search.plan.make_plan import read_plan, reopened
from search.plan.search import open_search
from trainables.errors import InvalidInput

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
    """Also with other resources and stages, which change no results."""
    if chosen:
        (runs / "small" / "selection.json").write_text("{}")
    changes = {"resources": {"cpus_per_trial": 0.5}, "stages": ["search"]}
    plan = read_plan(search_file(search={"trials": 6}, **changes), runs)
    assert plan.config.stages == ("search",)
    assert plan.config.search.trials == 8
    assert plan.notices == ("search.trials: the file says 6, but small was extended to 8; it continues to 8.",)


def test_a_search_whose_journal_is_gone_does_not_start_again(search_file: SearchFile, runs: Path) -> None:
    (runs / "small" / "study.journal").unlink()
    plan = read_plan(search_file(search={"trials": 8}), runs)
    with pytest.raises(
        InvalidInput, match=r"The trials of small are gone: .*/small/study\.journal is missing\. Restore it"
    ):
        open_search(plan)
    assert not (runs / "small" / "study.journal").exists()


def test_what_differs_is_said_with_all_other_mistakes(search_file: SearchFile, runs: Path) -> None:
    content = search_file(
        search={"trials": 8, "seed": 1}, final={"seeds": "5"}, losses=["pnp"], training={"batch_size": 100000}
    )
    caught = sentences_of(lambda: read_plan(content, runs))
    starts = {sentence.split(":")[0] for sentence in caught}
    assert {"search.seed", "final.seeds", "losses", "training", "training.batch_size"} <= starts
    assert not any("final.seeds: the search" in sentence for sentence in caught)


def test_a_stored_search_is_reopened_by_its_name(runs: Path) -> None:
    assert reopened(runs, "small").config.search.trials == 8
    with pytest.raises(InvalidInput, match=r"There is no search 'smal' in .* \(did you mean small\?\)"):
        reopened(runs, "smal")
