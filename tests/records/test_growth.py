"""Searches that grow go on before their test, and have a successor after it, which begins with copies of the trials."""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState
from support.driving import Opened, train
from support.refusals import sentences_of
from support.small_search import SearchFile, small_search

from search.config.search_config import parse_config
from search.driver.choice import freeze
from search.driver.make_plan import read_plan
from search.driver.stages import confirm_stage, final_stage, search_stage
from search.records.disk import plan_removal
from search.records.plan import Plan, growth
from search.records.records import Records, stored_search
from search.records.selection import Selection
from search.records.work import planned_budgets
from search.records.writable import WritableRecords, copy_trials, open_search
from search.stages import Stage
from search.study.trial_queue import QueuedStage, RunningTrial, TrialQueue
from trainables.common.errors import InvalidInput

Ended = Callable[..., Records]
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
    copy_trials(search)
    _train(search, _until_the_choice(search))
    if not plan.folder.selection.exists():
        freeze(search)
    if tested:
        _train(search, iter([final_stage(search, Selection.load(plan.folder.selection))]))
    return search


def _until_the_choice(search: WritableRecords) -> Iterator[QueuedStage]:
    yield search_stage(search)
    yield confirm_stage(search)


def _train(search: WritableRecords, stages: Iterator[QueuedStage]) -> None:
    queue = TrialQueue(stages)
    while job := queue.next_trial():
        train(queue, job, value)
    assert queue.done


@pytest.fixture(scope="module")
def ended(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Return a function that copies such a search into a runs folder: one that has chosen, or a tested one."""

    @cache
    def made(tested: bool) -> Path:
        runs = tmp_path_factory.mktemp("ended")
        go_on(read_plan(small_search(image_folder, **OF_ONE_LOSS), runs), tested=tested).close()
        return runs

    def copied(runs: Path, *, tested: bool = True) -> Records:
        shutil.copytree(made(tested), runs, dirs_exist_ok=True)
        return stored_search(runs, "small")

    return copied


GROWN = {
    "more trials": ({"search": {"trials": 7}}, "7 trials"),
    "another loss": ({"losses": ["proxy_anchor", "pnp"]}, "the loss proxy_anchor"),
    "a wider range": (
        {"space": {"pnp": {**RANGE, "temperature": {"low": 0.005, "high": 0.5, "log": True}}}},
        "a wider range of temperature",
    ),
}


@pytest.mark.parametrize("change", GROWN)
def test_before_the_test_a_search_goes_on_and_chooses_again(
    file: SearchFile, ended: Ended, tmp_path: Path, change: str
) -> None:
    ended(tmp_path, tested=False)
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


@pytest.mark.parametrize("change", GROWN)
def test_after_the_test_a_successor_goes_on(file: SearchFile, ended: Ended, tmp_path: Path, change: str) -> None:
    before = ended(tmp_path)
    changes, words = GROWN[change]
    plan = read_plan(file(**changes), tmp_path)
    said = (
        f"small was tested, so small-2 continues from its trials with {words}; its test is another opening, which the "
        "ledger counts."
    )
    assert plan.notices[0] == said
    most = sum(
        budget.most
        for loss in plan.config.loss_names
        for stage, budget in planned_budgets(plan, loss).items()
        if stage is Stage.TEST or (stage is Stage.SELECT and not (change == "another loss" and loss == "pnp"))
    )
    assert plan.notices[1].endswith(f"take up to {most} trainings."), "said before they are trained"
    assert (plan.config.name, plan.predecessor) == ("small-2", "small")
    search = go_on(plan)
    for loss in before.losses:
        copies = [trial for trial in search.trials(loss, Stage.SEARCH) if "copied_from" in trial.user_attrs]
        assert [copy.values for copy in copies] == [trial.values for trial in before.trials(loss, Stage.SEARCH)]
        confirmed = search.trials(loss, Stage.SELECT)
        taken = [trial for trial in confirmed if "copied_from" in trial.user_attrs]
        assert [copy.values for copy in taken] == [trial.values for trial in before.trials(loss, Stage.SELECT)]
        if change == "another loss":
            assert taken == confirmed, "nothing of the loss that was there is confirmed again"
    again = read_plan(file(**changes), tmp_path)
    assert again.notices[0] == said
    assert again.folder.name == "small-2", "the same file resumes the successor"
    assert read_plan(file(), tmp_path).folder.name == "small", "its own file still shows its result"


def test_a_search_stays_while_another_continues_from_it(file: SearchFile, ended: Ended, tmp_path: Path) -> None:
    """Otherwise the next run of its file would begin it anew and open its test again."""
    ended(tmp_path)
    go_on(read_plan(file(search={"trials": 5}), tmp_path), tested=True)
    with pytest.raises(InvalidInput, match=r"run `holdout remove small-2` first\. Nothing was removed"):
        plan_removal(tmp_path, "small")
    (tmp_path / "small").rename(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="small-2 continues from the trials of small, whose folder is missing"):
        read_plan(file(), tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / "small")
    for name in ("small-2", "small"):
        plan_removal(tmp_path, name).carry_out()
    assert read_plan(file(), tmp_path).folder.name == "small"


def test_a_tested_successor_has_one_too(file: SearchFile, ended: Ended, tmp_path: Path) -> None:
    (tmp_path / "small-3").mkdir()
    ended(tmp_path)
    go_on(read_plan(file(search={"trials": 5}), tmp_path), tested=True)
    plan = read_plan(file(search={"trials": 6}), tmp_path)
    assert (plan.config.name, plan.predecessor) == ("small-4", "small-2"), "a name that is taken is skipped"
    assert [notice.split(",")[0] for notice in plan.notices[::2]] == ["small was tested", "small-2 was tested"]


@pytest.mark.parametrize("tested", [False, True])
def test_a_longer_list_of_choices_is_a_successor_at_any_time(
    file: SearchFile, ended: Ended, tmp_path: Path, tested: bool
) -> None:
    ended(tmp_path, tested=tested)
    plan = read_plan(file(space={"pnp": {**RANGE, "variant": ["Ds", "Dq", "Ib"]}}, search={"trials": 8}), tmp_path)
    assert plan.folder.name == "small-2"
    assert ("A study's choices are fixed, so small-2 continues" in plan.notices[0]) != tested
    assert len(go_on(plan).trials("pnp", Stage.SEARCH)) == 8


def test_other_changes_are_still_refused(file: SearchFile, ended: Ended, tmp_path: Path) -> None:
    ended(tmp_path)
    narrower = {"pnp": {**RANGE, "temperature": {"low": 0.03, "high": 0.5, "log": True}}}
    for changes, key in (
        ({"space": narrower}, "space.pnp.temperature"),
        ({"losses": ["proxy_anchor"], "space": {}}, "losses"),
        ({"search": {"trials": 9, "objective": "recall_at_1"}}, "search.objective"),
    ):
        with pytest.raises(InvalidInput, match=key):
            read_plan(file(**changes), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small"], "nothing is created"
    clipped, wider = (file(space={"pnp": {"temperature": {"low": low, "high": 0.3}}}) for low in (0.2, 0.001))
    assert not growth(parse_config(clipped), parse_config(wider)), "the range moves the default"


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


def test_what_differs_is_said_with_all_other_mistakes(search_file: SearchFile, extended: Path) -> None:
    content = search_file(
        search={"trials": 8, "seed": 1}, final={"seeds": "5"}, losses=["pnp"], training={"batch_size": 100000}
    )
    caught = sentences_of(lambda: read_plan(content, extended))
    starts = {sentence.split(":")[0] for sentence in caught}
    assert {"search.seed", "final.seeds", "losses", "training", "training.batch_size"} <= starts
    assert not any("final.seeds: the search" in sentence for sentence in caught)


# The copies of a predecessor's trials, and a kill in the middle.

RECORD = {"epoch": 1, "loss": 0.5, "metrics": {"map_at_r": 0.25}, "start": 1.0, "end": 2.0}
LOSSES = ("proxy_anchor", "pnp")


def trained(search: WritableRecords, loss: str, *states: TrialState) -> None:
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
def begun(search_file: SearchFile, tmp_path: Path) -> WritableRecords:
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
def successor(search_file: SearchFile, tmp_path: Path) -> Opened:
    """Return a function that opens the successor of ``small``, which has five trials."""
    return lambda **changes: open_search(read_plan(search_file(search={"trials": 5}, **changes), tmp_path / "runs"))


def test_finished_trials_are_copied_whole_and_in_order(begun: WritableRecords, successor: Opened) -> None:
    search = successor()
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


def test_failures_before_any_epoch_are_not_copied(begun: WritableRecords, successor: Opened) -> None:
    study = begun.study("pnp", Stage.SELECT)
    study.enqueue([(begun.plan.spaces["pnp"].default, {"source_trial": 0, "seed": 1})])
    failure = {"cause": "CODE_ERROR", "reason": "KeyError: 'x'"}
    study.finish(study.ask(int).number, TrialState.FAIL, "CODE_ERROR: KeyError: 'x'", failure)
    search = successor()
    copy_trials(search)
    assert search.trials("pnp", Stage.SEARCH)
    assert not search.trials("pnp", Stage.SELECT)


def test_copies_count_and_the_search_goes_on_behind_them(begun: WritableRecords, successor: Opened) -> None:
    """A replicate among them names its copy."""
    study = begun.study("pnp", Stage.SEARCH)
    study.enqueue([(begun.trials("pnp", Stage.SEARCH)[2].params, {"again": True})])
    trained(begun, "pnp", TrialState.COMPLETE)
    search = successor()
    copy_trials(search)
    assert search.trials("pnp", Stage.SEARCH)[2].user_attrs["replicate_of"] == 1
    trained(search, "proxy_anchor", TrialState.COMPLETE, TrialState.COMPLETE)
    assert search.plan.budget("proxy_anchor").done(search.trials("proxy_anchor", Stage.SEARCH))
    trained(begun, "proxy_anchor", TrialState.COMPLETE)
    copy_trials(search)
    assert len(search.trials("proxy_anchor", Stage.SEARCH)) == 5, "what the other search finds later is not this one's"


@pytest.mark.parametrize("copied", [0, 2, 3])
def test_a_kill_in_the_middle_loses_and_doubles_nothing(
    begun: WritableRecords, successor: Opened, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = successor()
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
    again = successor()
    for _ in range(2):
        copy_trials(again)
    numbers = {
        loss: [t.user_attrs["copied_from"]["number"] for t in again.trials(loss, Stage.SEARCH)] for loss in LOSSES
    }
    assert numbers == {"proxy_anchor": [0, 1, 2], "pnp": [0, 2]}


def test_an_unfinished_default_has_no_successor(search_file: SearchFile, successor: Opened, tmp_path: Path) -> None:
    space: dict[str, Any] = {"pnp": {"variant": ["Ds", "Dq"]}}
    open_search(read_plan(search_file(space=space), tmp_path / "runs"))
    with pytest.raises(InvalidInput, match="Trial 0 of small/pnp, the default, is not finished"):
        successor(space={"pnp": {"variant": ["Ds", "Dq", "Ib"]}})


@pytest.mark.parametrize("content", ['{"search": "../small"}', "{}", "small"])
def test_a_damaged_record_of_the_predecessor_is_a_mistake(
    begun: WritableRecords, successor: Opened, content: str
) -> None:
    path = successor().plan.folder.predecessor
    path.write_text(content)
    with pytest.raises(InvalidInput, match=r"predecessor\.json is damaged"):
        successor()
