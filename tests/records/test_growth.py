"""Searches that grow before their test, and changes that are refused."""

from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from support.driving import train
from support.refusals import contents, sentences_of
from support.small_search import SearchFile

from search.config.search_config import parse_config
from search.driver.choice import freeze
from search.driver.make_plan import read_plan
from search.driver.stages import confirm_stage, final_stage, search_stage
from search.records.plan import Plan, growth
from search.records.selection import Selection
from search.records.writable import WritableRecords, open_search
from search.stages import Stage
from search.study.trial_queue import QueuedStage, RunningTrial, TrialQueue
from trainables.common.errors import InvalidInput

RANGE = {"temperature": {"low": 0.01, "high": 0.2, "log": True}, "variant": ["Ds", "Dq"]}
OF_ONE_LOSS: dict[str, Any] = {"losses": ["pnp"], "space": {"pnp": RANGE}, "search": {"trials": 4}}


@pytest.fixture
def file(search_file: SearchFile) -> SearchFile:
    """A search of one loss with a range and a list of choices."""
    return lambda **changes: search_file(**{**OF_ONE_LOSS, **changes})


def value(job: RunningTrial, epoch: int) -> float:
    return 0.3 + job.spec.seed % 97 / 200 + epoch / 100


def go_on(plan: Plan, *, tested: bool = False) -> WritableRecords:
    """Train a search up to its choice, and with ``tested`` its trainings for the test."""
    search = open_search(plan)
    _train(search_stage(search))
    _train(confirm_stage(search))
    if not plan.folder.selection.exists():
        freeze(search)
    if tested:
        _train(final_stage(search, Selection.load(plan.folder.selection)))
    return search


def _train(stage: QueuedStage) -> None:
    queue = TrialQueue(iter([stage]))
    while job := queue.next_trial():
        train(queue, job, value)
    assert queue.done


GROWN = {
    "more trials": ({"search": {"trials": 7}}, "7 trials"),
    "another loss": ({"losses": ["proxy_anchor", "pnp"]}, "the loss proxy_anchor"),
    "a wider range": (
        {"space": {"pnp": {**RANGE, "temperature": {"low": 0.005, "high": 0.5, "log": True}}}},
        "a wider range of temperature",
    ),
}


@pytest.mark.parametrize("change", GROWN)
def test_before_the_test_a_search_goes_on_and_chooses_again(file: SearchFile, tmp_path: Path, change: str) -> None:
    go_on(read_plan(file(), tmp_path)).close()
    changes, words = GROWN[change]
    plan = read_plan(file(**changes), tmp_path)
    assert plan.folder.name == "small"
    assert plan.notices == (f"small was chosen and not tested, so it continues with {words} and chooses again.",)
    search = go_on(plan)
    assert search.config.loss_names[0] == "pnp", "its first study holds the sessions"
    chosen = Selection.load(plan.folder.selection).chosen
    assert set(chosen) == set(search.config.loss_names)
    for loss in search.config.loss_names:
        assert len(search.trials(loss, Stage.SEARCH)) == search.config.search.trials
        wanted = {trial.number for trial in search.trials(loss, Stage.SEARCH)}
        assert {trial.user_attrs["source_trial"] for trial in search.trials(loss, Stage.SELECT)} <= wanted
        assert all(trial.state is TrialState.COMPLETE for trial in search.trials(loss, Stage.SELECT))
    assert not read_plan(file(**changes), tmp_path).notices, "it is what the search is now"


def test_what_a_search_does_not_take_is_refused(file: SearchFile, tmp_path: Path) -> None:
    go_on(read_plan(file(), tmp_path)).close()
    narrower = {"pnp": {**RANGE, "temperature": {"low": 0.03, "high": 0.5, "log": True}}}
    longer = {"pnp": {**RANGE, "variant": ["Ds", "Dq", "Ib"]}}
    for changes, key in (
        ({"space": narrower}, "space.pnp.temperature"),
        ({"space": longer, "search": {"trials": 8}}, r"space.pnp.variant: the search small began with \['Ds', 'Dq'\]"),
        ({"losses": ["proxy_anchor"], "space": {}}, "losses"),
        ({"search": {"trials": 9, "objective": "recall_at_1"}}, "search.objective"),
    ):
        with pytest.raises(InvalidInput, match=key):
            read_plan(file(**changes), tmp_path)
    clipped, wider = (file(space={"pnp": {"temperature": {"low": low, "high": 0.3}}}) for low in (0.2, 0.001))
    assert not growth(parse_config(clipped), parse_config(wider)), "the range moves the default"
    go_on(read_plan(file(), tmp_path), tested=True).close()
    tested = contents(tmp_path)
    for changes, words in GROWN.values():
        said = (
            f"The file asks for {words}, and the test of small has been opened or is trained for, so its trials and "
            "choice are kept as they are; give the new search a name of its own, such as `--set name=small-2`"
        )
        (refused,) = sentences_of(read_plan, file(**changes), tmp_path)
        assert refused.startswith(said)
        assert ("`holdout compare small small-2` compares both" in refused) == ("loss" in words)
    assert contents(tmp_path) == tested


# Changes of the file of a search that is resumed.


@pytest.fixture
def extended(search_file: SearchFile, tmp_path: Path) -> Path:
    """A runs folder with the search ``small``, which was extended to 8 trials."""
    folder = tmp_path / "runs"
    open_search(read_plan(search_file(search={"trials": 6}), folder))
    open_search(read_plan(search_file(search={"trials": 8}), folder))
    return folder


@pytest.mark.parametrize("chosen", [False, True])
def test_the_file_it_began_with_goes_on_with_an_extended_search(
    search_file: SearchFile, extended: Path, chosen: bool
) -> None:
    """Also with other resources and stages, which change no results."""
    if chosen:
        (extended / "small" / "selection.json").write_text("{}")
    changes = {"resources": {"cpus_per_trial": 0.5}, "stages": ["search"]}
    plan = read_plan(search_file(search={"trials": 6}, **changes), extended)
    assert plan.config.stages == ("search",)
    assert plan.config.search.trials == 8
    assert plan.notices == ("search.trials: the file says 6, but small was extended to 8; it continues to 8.",)


def test_a_search_whose_journal_is_gone_does_not_start_again(search_file: SearchFile, extended: Path) -> None:
    (extended / "small" / "study.journal").unlink()
    plan = read_plan(search_file(search={"trials": 8}), extended)
    with pytest.raises(
        InvalidInput, match=r"The trials of small are gone: .*/small/study\.journal is missing\. Restore it"
    ):
        open_search(plan)
    assert not (extended / "small" / "study.journal").exists()
