"""A successor begins with the trials of its predecessor: copies, errors, and a kill in the middle."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from search.plan.make_plan import read_plan
from search.plan.search import OpenedSearch, copy_trials, open_search
from search.stages import Stage
from trainables.errors import InvalidInput

SearchFile = Callable[..., dict[str, Any]]
RECORD = {"epoch": 1, "loss": 0.5, "metrics": {"map_at_r": 0.25}, "start": 1.0, "end": 2.0}
LOSSES = ("proxy_anchor", "pnp")


def trained(search: OpenedSearch, loss: str, *states: TrialState) -> None:
    """Add trials that ended in ``states``, with all attributes; RUNNING ones do not end."""
    study = search.study(loss, Stage.SEARCH)
    if not study.trials():
        study.enqueue([(search.plan.spaces[loss].default, {"default": True})])
    for state in states:
        trial = study.ask(lambda number: 7 + number)
        if state is TrialState.RUNNING:
            continue
        study.report(trial.number, RECORD)  # type: ignore[arg-type]
        study.finish(trial.number, state, f"ended as {state.name}")


@pytest.fixture
def begun(search_file: SearchFile, tmp_path: Path) -> OpenedSearch:
    """A search with finished trials and a running one, and with a training for its test."""
    search = open_search(read_plan(search_file(), tmp_path / "runs"))
    trained(search, "proxy_anchor", TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    trained(search, "pnp", TrialState.COMPLETE, TrialState.RUNNING, TrialState.COMPLETE)
    search.study("pnp", Stage.TEST).enqueue([(search.plan.spaces["pnp"].default, {"role": "default"})])
    return search


def content_of(found: FrozenTrial) -> dict[str, Any]:
    """Return everything a trial holds."""
    names = ("state", "values", "params", "distributions", "intermediate_values", "system_attrs", "datetime_complete")
    return {name: getattr(found, name) for name in names}


@pytest.fixture
def successor(search_file: SearchFile) -> Callable[..., OpenedSearch]:
    """Return a function that opens the successor of ``small``, which has five trials."""

    def make(runs: Path, **changes: Any) -> OpenedSearch:
        return open_search(read_plan(search_file(**{"search": {"trials": 5}, **changes}), runs))

    return make


def test_finished_trials_are_copied_whole_and_in_order(
    begun: OpenedSearch, successor: Callable[..., OpenedSearch]
) -> None:
    search = successor(begun.plan.folder.runs)
    copy_trials(search)
    for loss, numbers in zip(LOSSES, ((0, 1, 2), (0, 2)), strict=True):
        originals = begun.trials(loss, Stage.SEARCH)
        copies = search.trials(loss, Stage.SEARCH)
        assert [copy.number for copy in copies] == list(range(len(numbers)))
        for number, copy in zip(numbers, copies, strict=True):
            assert content_of(copy) == content_of(originals[number])
            assert copy.user_attrs["copied_from"] == {"search": "small", "number": number}
            for key in ("seed", "outcome", "epoch:000001"):
                assert copy.user_attrs[key] == originals[number].user_attrs[key]
        assert copies[0].user_attrs["default"]
    assert not search.is_done(Stage.SEARCH)
    assert (search.name, search.plan.predecessor) == ("small-2", "small")


def test_copies_count_and_the_search_goes_on_behind_them(
    begun: OpenedSearch, successor: Callable[..., OpenedSearch]
) -> None:
    """A replicate among them names its copy."""
    study = begun.study("pnp", Stage.SEARCH)
    study.enqueue([(begun.trials("pnp", Stage.SEARCH)[2].params, {"again": True})])
    trained(begun, "pnp", TrialState.COMPLETE)
    search = successor(begun.plan.folder.runs)
    copy_trials(search)
    assert search.trials("pnp", Stage.SEARCH)[2].user_attrs["replicate_of"] == 1
    trained(search, "proxy_anchor", TrialState.COMPLETE, TrialState.COMPLETE)
    assert search.plan.budget("proxy_anchor").done(search.trials("proxy_anchor", Stage.SEARCH))
    trained(begun, "proxy_anchor", TrialState.COMPLETE)
    copy_trials(search)
    assert len(search.trials("proxy_anchor", Stage.SEARCH)) == 5, "what the other search finds later is not this one's"


@pytest.mark.parametrize("copied", [0, 2, 3])
def test_a_kill_in_the_middle_loses_and_doubles_nothing(
    begun: OpenedSearch, successor: Callable[..., OpenedSearch], copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = successor(begun.plan.folder.runs)
    add, left = optuna.Study.add_trial, [copied]

    def killed(self: optuna.Study, trial: FrozenTrial) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        add(self, trial)

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "add_trial", killed)
        with pytest.raises(KeyboardInterrupt):
            copy_trials(search)
    again = successor(begun.plan.folder.runs)
    for _ in range(2):
        copy_trials(again)
    numbers = {
        loss: [t.user_attrs["copied_from"]["number"] for t in again.trials(loss, Stage.SEARCH)] for loss in LOSSES
    }
    assert numbers == {"proxy_anchor": [0, 1, 2], "pnp": [0, 2]}


def test_an_unfinished_default_has_no_successor(
    search_file: SearchFile, successor: Callable[..., OpenedSearch], tmp_path: Path
) -> None:
    space: dict[str, Any] = {"pnp": {"variant": ["Ds", "Dq"]}}
    open_search(read_plan(search_file(space=space), tmp_path / "runs"))
    with pytest.raises(InvalidInput, match="Trial 0 of small/pnp, the default, is not finished"):
        successor(tmp_path / "runs", space={"pnp": {"variant": ["Ds", "Dq", "Ib"]}})


@pytest.mark.parametrize("content", ['{"search": "../small"}', "{}", "small"])
def test_a_damaged_record_of_the_predecessor_is_a_mistake(
    begun: OpenedSearch, successor: Callable[..., OpenedSearch], content: str
) -> None:
    path = successor(begun.plan.folder.runs).plan.folder.predecessor
    path.write_text(content)
    with pytest.raises(InvalidInput, match=r"predecessor\.json is damaged"):
        successor(begun.plan.folder.runs)
