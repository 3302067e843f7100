"""The oracle finds what is wrong: a finished search is damaged by hand."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hostile.world import LOSSES, World
from support.journals import SET_VALUE, Operation, drop_trial, of_trial, rewrite

from soak.oracle import (
    LEDGER,
    Left,
    count_epochs,
    epochs_of_running,
    read_trials,
    record_differences,
    undisturbed_differences,
)

NAME, LOSS, TRIALS, EPOCHS = "small", "proxy_anchor", 2, 2
STUDY = f"{NAME}/{LOSS}"


def left_in(folder: Path) -> Left:
    return Left(folder=folder, search=NAME, losses=LOSSES, trials=TRIALS, epochs=EPOCHS)


@pytest.fixture(scope="module")
def whole(world: World) -> Left:
    """A search that nothing was done to."""
    return left_in(world.origin)


@pytest.fixture
def left(whole: Left, tmp_path: Path) -> Left:
    """A copy to be damaged."""
    for name in ("runs", "state"):
        shutil.copytree(whole.folder / name, tmp_path / "copy" / name)
    return left_in(tmp_path / "copy")


def test_nothing_is_said_of_what_is_whole(whole: Left) -> None:
    assert record_differences(whole, whole) == []
    assert count_epochs(whole.journal) > TRIALS * EPOCHS
    assert epochs_of_running(whole.journal) == {}
    assert count_epochs(Path("/nowhere/study.journal")) == 0


RUN = "(SELECT run_uuid FROM tags WHERE key = 'holdout.trial' AND value = 'small/proxy_anchor/1')"
OTHER_RUN = "MLflow differs from the studies of small"
DAMAGED: dict[str, dict[str, Callable[[Left], object]]] = {
    "a trial is gone": {
        f"{LOSS} has the trials [0] and was asked for 2": lambda left: _change(
            left, lambda found: drop_trial(found, STUDY, 1)
        )
    },
    "other records": {
        "1)] more than once": lambda left: _change(
            left, lambda found: found.append(dict(next(e for e in _of_trial(found) if e["op_code"] == SET_VALUE)))
        ),
        f"{LOSS} trial 1 has the epochs [1], not [1, 2]": lambda left: _change(
            left,
            lambda found: found.remove(next(e for e in _of_trial(found) if "epoch:000002" in e.get("user_attr", {}))),
        ),
        "and after its last step": lambda left: _change(
            left, lambda found: [entry.update(values=[0.001]) for entry in _of_trial(found) if entry.get("values")]
        ),
        f"{LOSS} trial 1: seed is 5": lambda left: _change(
            left, lambda found: _of_trial(found)[0]["user_attrs"].update(seed=5)
        ),
        "has 2 openings, not 1": lambda left: _again(left.runs / LEDGER),
        "has 0 openings, not 1": lambda left: (left.folder / "state" / "holdout" / LEDGER).unlink(),
        "has scores of ['nobody']": lambda left: _scored(left, lambda opening: opening.update(id="nobody")),
        "small has other scores of its test than undisturbed": lambda left: _scored(
            left, lambda opening: opening["scores"][0]["metrics"].update(map_at_r=0.001)
        ),
        "small/summary.json cannot be read": lambda left: _half(left.runs / NAME / "summary.json"),
        "other.db cannot be read": lambda left: _half(left.runs / "mlflow.db", left.runs / "other.db"),
        "small/.x.json.1234 is left over": lambda left: (left.runs / NAME / ".x.json.1234").write_text("{"),
    },
    "a run is gone": {
        OTHER_RUN: lambda left: _in_tracking(
            left, f"DELETE FROM tags WHERE key = 'holdout.search' AND run_uuid = {RUN}"
        )
    },
    "a journal without its end": {
        "study.journal cannot be read": lambda left: _change(left, lambda found: found[-1].update(left=1))
    },
    "a changed line": {
        "study.journal cannot be read": lambda left: left.journal.write_bytes(
            left.journal.read_bytes().replace(b"all 2 epochs trained", b"all 3 epochs trained", 1)
        )
    },
}
"""Groups of damages that are found together -> the expected sentence of each."""


def _change(left: Left, change: Callable[[list[Operation]], object]) -> None:
    rewrite(left.journal, change)


def _of_trial(found: list[Operation]) -> list[Operation]:
    return of_trial(found, STUDY, 1)


def _in_tracking(left: Left, statement: str) -> None:
    with closing(sqlite3.connect(left.runs / "mlflow.db")) as database, database:
        assert database.execute(statement).rowcount, statement


def _again(file: Path) -> None:
    line = json.loads(file.read_text().splitlines()[0])
    with file.open("a") as opened:
        opened.write(json.dumps({**line, "id": "another"}) + "\n")


def _scored(left: Left, change: Callable[[dict[str, Any]], object]) -> None:
    file = left.runs / NAME / "test.json"
    content = json.loads(file.read_text())
    change(content["openings"][0])
    file.write_text(json.dumps(content))


def _half(file: Path, copy: Path | None = None) -> None:
    (copy or file).write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("damage", DAMAGED)
def test_each_damage_is_found(damage: str, left: Left, whole: Left) -> None:
    for do in DAMAGED[damage].values():
        do(left)
    said = record_differences(left, whole)
    assert not [sentence for sentence in DAMAGED[damage] if not any(sentence in found for found in said)], said


def test_other_trials_than_undisturbed_are_found(whole: Left) -> None:
    first, *others = read_trials(whole.journal).items()
    said = undisturbed_differences(dict(others), dict([first, *others[:-1]]))
    assert said[0].endswith("is missing; undisturbed it is there.")
    assert said[1].endswith("is there; undisturbed it is not.")
    assert len(said) == 2
