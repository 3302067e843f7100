"""A search that begins with another one's trials: copies, errors, and a kill in the middle."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from search.plan.make_plan import read_plan
from search.plan.search import OpenedSearch, copy_trials, open_search
from search.stages import Stage
from trainables.mistakes import Mistakes

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
    """A search with finished trials and a running one."""
    search = open_search(read_plan(search_file(), tmp_path / "runs"))
    trained(search, "proxy_anchor", TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    trained(search, "pnp", TrialState.COMPLETE, TrialState.RUNNING, TrialState.COMPLETE)
    return search


def content_of(found: FrozenTrial) -> dict[str, Any]:
    """Return everything a trial holds."""
    names = ("state", "values", "params", "distributions", "intermediate_values", "system_attrs", "datetime_complete")
    return {name: getattr(found, name) for name in names}


@pytest.fixture
def further(search_file: SearchFile) -> Callable[..., OpenedSearch]:
    """Return a function that opens a search that begins with the trials of ``small``."""

    def make(runs: Path, **changes: Any) -> OpenedSearch:
        content = search_file(name="further", **{"search": {"trials": 5, "from": "small"}, **changes})
        return open_search(read_plan(content, runs))

    return make


def test_finished_trials_are_copied_whole_and_in_order(
    begun: OpenedSearch, further: Callable[..., OpenedSearch]
) -> None:
    search = further(begun.plan.folder.runs)
    assert copy_trials(search) == 3 + 2
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
    assert [row["search"]["from"] for row in [search.config.model_dump(mode="json")]] == ["small"]


def test_copies_count_and_the_search_goes_on_behind_them(
    begun: OpenedSearch, further: Callable[..., OpenedSearch]
) -> None:
    search = further(begun.plan.folder.runs)
    copy_trials(search)
    trained(search, "proxy_anchor", TrialState.COMPLETE, TrialState.COMPLETE)
    assert search.plan.budget("proxy_anchor").done(search.trials("proxy_anchor", Stage.SEARCH))
    trained(begun, "proxy_anchor", TrialState.COMPLETE)
    assert copy_trials(search) == 0, "what the other search finds later is not this one's"
    assert len(search.trials("proxy_anchor", Stage.SEARCH)) == 5


def test_a_replicate_names_its_copy(begun: OpenedSearch, further: Callable[..., OpenedSearch]) -> None:
    study = begun.study("pnp", Stage.SEARCH)
    values = begun.trials("pnp", Stage.SEARCH)[2].params
    study.enqueue([(values, {"again": True})])
    trained(begun, "pnp", TrialState.COMPLETE)
    search = further(begun.plan.folder.runs)
    copy_trials(search)
    assert search.trials("pnp", Stage.SEARCH)[2].user_attrs["replicate_of"] == 1


@pytest.mark.parametrize("copied", range(5))
def test_a_kill_in_the_middle_loses_and_doubles_nothing(
    begun: OpenedSearch, further: Callable[..., OpenedSearch], copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = further(begun.plan.folder.runs)
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
    trained(begun, "proxy_anchor", TrialState.COMPLETE)  # the other one goes on meanwhile
    again = further(begun.plan.folder.runs)
    copy_trials(again)
    assert copy_trials(again) == 0
    numbers = {
        loss: [t.user_attrs["copied_from"]["number"] for t in again.trials(loss, Stage.SEARCH)] for loss in LOSSES
    }
    # What was to be copied was fixed when its study began.
    assert numbers == {"proxy_anchor": [0, 1, 2], "pnp": [0, 2]}


DIFFERENT: list[tuple[dict[str, Any], str]] = [
    ({"training": {"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16}}, "training.epochs: "),
    ({"model": {"embedding_dim": 16}}, "model.embedding_dim: "),
    ({"losses": ["pnp"]}, "losses: "),
    ({"space": {"pnp": {"alpha": [2]}}}, "space.pnp: "),
    ({"search": {"from": "small", "objective": "recall_at_1"}}, "search.objective: "),
    ({"metrics": {"validation": ["map_at_r"]}}, "metrics.validation: "),
    ({"split": {"seed": 1}}, "split.seed: "),
    ({"search": {"from": "smal"}}, "search.from: There is no search 'smal'"),
    ({"search": {"from": "a/b"}}, "search.from: a search's name names a folder"),
]


@pytest.mark.parametrize(("changes", "said"), DIFFERENT, ids=[said for _, said in DIFFERENT])
def test_each_difference_is_a_sentence(
    begun: OpenedSearch, further: Callable[..., OpenedSearch], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(Mistakes) as caught:
        further(begun.plan.folder.runs, **changes)
    assert all(sentence.startswith(said) for sentence in caught.value.sentences), caught.value.sentences
    assert not (begun.plan.folder.runs / "further").exists()


def test_what_does_not_touch_trials_may_differ(begun: OpenedSearch, further: Callable[..., OpenedSearch]) -> None:
    changes = {"search": {"from": "small", "trials": 9, "sampler": "random", "seed": 3}, "final": {"seeds": 1}}
    assert further(begun.plan.folder.runs, **changes).config.search.origin == "small"


def test_a_search_whose_default_has_not_ended_cannot_be_begun_with(
    search_file: SearchFile, further: Callable[..., OpenedSearch], tmp_path: Path
) -> None:
    open_search(read_plan(search_file(), tmp_path / "runs"))
    with pytest.raises(Mistakes, match="trial 0 of small/pnp, the default, is not finished"):
        further(tmp_path / "runs")
