"""The oracle finds what is wrong: a finished search is damaged by hand, one damage a copy."""

import fcntl
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.commands import holdout_here
from support.finished_search import finish
from support.journals import SET_VALUE, Operation, drop_trial, of_trial, rewrite
from support.small_search import draw_folder, small_search

from soak.oracle import (
    Asked,
    count_epochs,
    doubled_steps,
    epochs_of_running,
    file_differences,
    ledger_differences,
    lock_differences,
    read_trials,
    scores,
    tracking_differences,
    trial_differences,
    undisturbed_differences,
)

NAME, LOSS, TRIALS, EPOCHS = "small", "proxy_anchor", 2, 2
STUDY = f"{NAME}/{LOSS}"


class Left:
    """What a search left in ``folder``, and all that the oracle says of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self.journal = self.runs / NAME / "study.journal"
        self.tracking = self.runs / "mlflow.db"

    def differences(self, undisturbed: "Left") -> list[str]:
        trials = read_trials(self.journal)
        asked = Asked(searches=(NAME,), losses=(LOSS,), trials=TRIALS, epochs=EPOCHS)
        return [
            *trial_differences(trials, asked),
            *undisturbed_differences(trials, read_trials(undisturbed.journal), {NAME: NAME}),
            *doubled_steps(self.journal),
            *tracking_differences(self.runs, (NAME,), (LOSS,), NAME, f"sqlite:///{self.tracking}"),
            *ledger_differences(self.runs, self.folder / "state", (NAME,), 1),
            *file_differences(self.runs),
            *lock_differences(self.runs),
        ]

    def in_trial(self, change: Callable[[Operation], object]) -> None:
        """Change every line of trial 1."""
        rewrite(self.journal, lambda found: [change(entry) for entry in of_trial(found, STUDY, 1)])

    def in_tracking(self, statement: str) -> None:
        with closing(sqlite3.connect(self.tracking)) as database, database:
            assert database.execute(statement).rowcount, statement


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """A search that nothing was done to."""
    folder = tmp_path_factory.mktemp("whole")
    content = small_search(
        draw_folder(folder / "images"),
        losses=[LOSS],
        search={"trials": TRIALS, "pruner": "none"},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1},
    )
    content["training"]["epochs"] = EPOCHS
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        finish(folder / "runs", content)
    holdout_here("sync", NAME, "--runs", folder / "runs")
    return Left(folder)


@pytest.fixture
def left(whole: Left, tmp_path: Path) -> Left:
    """A copy to be damaged."""
    shutil.copytree(whole.folder, tmp_path / "copy")
    return Left(tmp_path / "copy")


def test_nothing_is_said_of_what_is_whole(whole: Left) -> None:
    assert whole.differences(whole) == []
    assert count_epochs(whole.journal) > TRIALS * EPOCHS
    assert epochs_of_running(whole.journal) == {}
    assert scores(whole.runs, NAME)[0].keys() == {"loss", "source_trial", "seed", "fold", "metrics"}
    assert count_epochs(Path("/nowhere/study.journal")) == 0


RUN = "(SELECT run_uuid FROM tags WHERE key = 'holdout.trial' AND value = 'small/proxy_anchor/1')"
DAMAGED: dict[str, tuple[Callable[[Left], object], str]] = {
    "a trial is gone": (
        lambda left: rewrite(left.journal, lambda found: drop_trial(found, STUDY, 1)),
        "small/proxy_anchor has the trials [0] and was asked for 2",
    ),
    "an epoch is gone": (
        lambda left: rewrite(left.journal, lambda found: found.remove(_line(found, "epoch:000002"))),
        "small/proxy_anchor trial 1 has the epochs [(None, 1)], not [(None, 1), (None, 2)]",
    ),
    "a step twice": (
        lambda left: rewrite(left.journal, lambda found: found.append(dict(_a_step(found)))),
        "has the steps [(1, 1)] more than once",
    ),
    "a value is another": (
        lambda left: left.in_trial(lambda entry: entry.get("values") and entry.update(values=[0.001])),
        "and after its last step",
    ),
    "a seed is another": (
        lambda left: left.in_trial(lambda entry: "user_attrs" in entry and entry.update(user_attrs={"seed": 5})),
        "small/proxy_anchor trial 1: seed is 5",
    ),
    "a run is gone": (
        lambda left: left.in_tracking(f"DELETE FROM tags WHERE key = 'holdout.search' AND run_uuid = {RUN}"),
        "MLflow differs from the studies of small",
    ),
    "a run of no trial": (
        lambda left: left.in_tracking(
            f"UPDATE tags SET value = 'small/mpa/9' WHERE key = 'holdout.trial' AND run_uuid = {RUN}"
        ),
        "MLflow differs from the studies of small",
    ),
    "two openings": (lambda left: _again(left.runs / "test_openings.jsonl"), "has 2 openings, not 1"),
    "no opening of the user's": (
        lambda left: (left.folder / "state" / "holdout" / "test_openings.jsonl").unlink(),
        "has 0 openings, not 1",
    ),
    "scores of no opening": (
        lambda left: _scored_elsewhere(left.runs / NAME / "test.json"),
        "small/test.json has scores of ['another']",
    ),
    "half a JSON file": (lambda left: _half(left.runs / NAME / "summary.json"), "small/summary.json cannot be read"),
    "half a database": (lambda left: _half(left.tracking, left.runs / "other.db"), "other.db cannot be read"),
    "a journal without its end": (
        lambda left: rewrite(left.journal, lambda found: found[-1].update(left=1)),
        "study.journal cannot be read",
    ),
    "a changed line": (lambda left: _changed(left.journal), "study.journal cannot be read"),
    "a draft": (
        lambda left: (left.runs / NAME / ".test.json.1234").write_text("{"),
        "small/.test.json.1234 is left over",
    ),
}


def _line(found: list[Operation], attribute: str) -> Operation:
    return next(entry for entry in of_trial(found, STUDY, 1) if attribute in entry.get("user_attr", {}))


def _a_step(found: list[Operation]) -> Operation:
    return next(entry for entry in of_trial(found, STUDY, 1) if entry["op_code"] == SET_VALUE)


def _again(file: Path) -> None:
    line = json.loads(file.read_text().splitlines()[0])
    with file.open("a") as opened:
        opened.write(json.dumps({**line, "id": "another"}) + "\n")


def _scored_elsewhere(file: Path) -> None:
    content = json.loads(file.read_text())
    content["openings"][0]["id"] = "another"
    file.write_text(json.dumps(content))


def _half(file: Path, copy: Path | None = None) -> None:
    (copy or file).write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _changed(journal: Path) -> None:
    journal.write_bytes(journal.read_bytes().replace(b"all 2 epochs trained", b"all 3 epochs trained", 1))


@pytest.mark.parametrize("damage", DAMAGED)
def test_each_damage_is_found(damage: str, left: Left, whole: Left) -> None:
    do, expected = DAMAGED[damage]
    do(left)
    said = left.differences(whole)
    assert any(expected in sentence for sentence in said), said


def test_a_lock_that_is_held_is_found(left: Left, whole: Left) -> None:
    with (left.runs / NAME / ".driver.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert left.differences(whole) == ["small/.driver.lock is held."]
    assert left.differences(whole) == []


def test_other_trials_than_undisturbed_are_found(whole: Left) -> None:
    first, *others = read_trials(whole.journal).items()
    said = undisturbed_differences(dict(others), dict([first, *others[:-1]]), {NAME: NAME})
    assert said[0].endswith("is missing; undisturbed it is there.")
    assert said[1].endswith("is there; undisturbed it is not.")
    assert len(said) == 2
