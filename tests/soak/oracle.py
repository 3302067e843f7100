"""What a search left, read by Optuna, by MLflow's client and from the raw files, without the search's own code."""

import json
import math
import re
import sqlite3
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial
from safetensors import safe_open
from support.journals import SET_VALUE, epochs_in, operations, with_checksums
from support.mlflow_rows import assert_mlflow_equals_the_studies

Trials = dict[tuple[str, int], FrozenTrial]
"""Trials by their study's name below the search's, and their number."""


@dataclass(frozen=True, kw_only=True)
class Left:
    """What was asked of a search, and the folder with its ``runs``, ``state`` and ``cache``.

    ``trials`` and ``epochs`` are those of each loss, ``tracking`` is MLflow's server, if there is one.
    """

    folder: Path
    search: str
    losses: tuple[str, ...]
    trials: int
    epochs: int
    openings: int = 1
    tracking: str | None = None

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def journal(self) -> Path:
        return self.runs / self.search / "study.journal"


def record_differences(left: Left, undisturbed: Left | None) -> list[str]:
    """Return every difference between what is left and what is expected, also from an ``undisturbed`` twin."""
    trials = read_trials(left.journal)
    said = [*trial_differences(trials, left), *doubled_steps(left.journal)]
    if undisturbed is not None:
        said += undisturbed_differences(trials, read_trials(undisturbed.journal))
        if scores(left) != scores(undisturbed):
            said.append(f"{left.search} has other scores of its test than undisturbed.")
    said += [*tracking_differences(left), *ledger_differences(left)]
    for folder in (left.runs, left.folder / "cache"):
        said += file_differences(folder) if folder.exists() else []
    return said


# The studies: exactly the trials asked for, each epoch once, and what an undisturbed search came to.

NOT_COMPARED = ("outcome",)
"""Attributes that say how a trial ended in words; its state and its epochs are compared."""
TIMES = ("start", "end", "checkpoint")
"""Of an epoch: when it was trained, and by which attempt."""


def read_trials(journal: Path) -> Trials:
    """Return the trials of all studies in a journal; none before there is one."""
    found: Trials = {}
    if journal.exists():
        storage = JournalStorage(JournalFileBackend(str(journal)))
        for study in storage.get_all_studies():
            name = study.study_name.partition("/")[2]
            trials = storage.get_all_trials(study._study_id, deepcopy=False)
            found |= {(name, trial.number): trial for trial in trials}
    return found


def count_epochs(journal: Path) -> int:
    return sum(len(epochs_in(trial)) for trial in read_trials(journal).values())


def epochs_of_running(journal: Path) -> dict[str, int]:
    """Return the number of epochs that each running trial has stored, by its name."""
    running = {key: trial for key, trial in read_trials(journal).items() if trial.state.name == "RUNNING"}
    return {_named(key): len(epochs_in(trial)) for key, trial in running.items()}


def _named(key: tuple[str, int]) -> str:
    study, number = key
    return f"{study} trial {number}"


def trial_differences(trials: Trials, left: Left) -> list[str]:
    """Return what is missing or unfinished."""
    said = []
    for loss in left.losses:
        numbers = sorted(number for study, number in trials if study == loss)
        if numbers != list(range(left.trials)):
            said.append(f"{loss} has the trials {numbers} and was asked for {left.trials}.")
    for key, trial in trials.items():
        said += [f"{_named(key)} {sentence}" for sentence in _of_one(trial, left)]
    return said


def _of_one(trial: FrozenTrial, left: Left) -> list[str]:
    if trial.state.name != "COMPLETE":
        return [f"is {trial.state.name}: {trial.user_attrs.get('outcome', 'no outcome')}."]
    said = []
    wanted = [*range(1, trial.user_attrs.get("epochs", left.epochs) + 1)]
    records, steps = epochs_in(trial), dict(sorted(trial.intermediate_values.items()))
    if (found := [record["epoch"] for record in records]) != wanted:
        said.append(f"has the epochs {found}, not {wanted}.")
    if len(trial.values or ()) != 1 or not math.isfinite(trial.values[0]):
        said.append(f"is COMPLETE with the values {trial.values}.")
    elif steps and trial.values[0] != steps[max(steps)]:
        said.append(f"has the value {trial.values[0]}, and after its last step {steps[max(steps)]}.")
    best = {step: max(record["metrics"].get("map_at_r", -1) for record in records[:step]) for step in steps}
    if best != steps:
        said.append(f"has the steps {steps}, and its epochs' best values are {best}.")
    return said


def doubled_steps(journal: Path) -> list[str]:
    """Return the steps that a trial reported more than once."""
    steps = [(entry["trial_id"], entry["step"]) for entry in operations(journal) if entry["op_code"] == SET_VALUE]
    doubled = [step for step, times in Counter(steps).items() if times > 1]
    return [f"{journal} has the steps {doubled} more than once."] if doubled else []


def undisturbed_differences(found: Trials, undisturbed: Trials) -> list[str]:
    """Return where the trials ``found`` are not those of a search with the same seeds that nothing was done to."""
    said = [f"{_named(key)} is missing; undisturbed it is there." for key in sorted(undisturbed.keys() - found.keys())]
    said += [f"{_named(key)} is there; undisturbed it is not." for key in sorted(found.keys() - undisturbed.keys())]
    for key in sorted(found.keys() & undisturbed.keys()):
        here, there = _comparable(found[key]), _comparable(undisturbed[key])
        for part in sorted(here.keys() | there.keys()):
            if here.get(part) != there.get(part):
                said.append(f"{_named(key)}: {part} is {here.get(part)}, undisturbed {there.get(part)}.")
    return said


def _comparable(trial: FrozenTrial) -> dict[str, Any]:
    """Return what does not depend on when and in how many attempts a trial was trained."""
    content: dict[str, Any] = {"state": trial.state, "values": trial.values, "steps": trial.intermediate_values}
    for key, value in trial.user_attrs.items():
        if key.startswith("epoch:"):
            content[key] = {name: part for name, part in value.items() if name not in TIMES}
        elif key not in NOT_COMPARED:
            content[key] = value
    return content


# MLflow.


def tracking_differences(left: Left) -> list[str]:
    """Return where the runs in MLflow are not the studies of the search."""
    try:
        assert_mlflow_equals_the_studies(left.runs, left.search, left.losses, tracking=left.tracking)
    except Exception:  # a missing tag or metric is another error than a wrong one
        return [f"MLflow differs from the studies of {left.search}: {traceback.format_exc(limit=-1)}"]
    return []


# The ledgers: the test classes were opened once, in both of them, and scored once.

LEDGER = "test_openings.jsonl"


def ledger_differences(left: Left) -> list[str]:
    """Return where the ledgers in the runs folder and the user's state folder lack openings, each read once."""
    said = []
    for file in (left.runs / LEDGER, left.folder / "state" / "holdout" / LEDGER):
        lines = _lines(file)
        opened = [line["id"] for line in lines if "id" in line]
        read = [line["read"] for line in lines if "read" in line]
        if len(opened) != left.openings:
            said.append(f"{file} has {len(opened)} openings, not {left.openings}.")
        if sorted(set(read)) != sorted(set(opened)) or len(read) != len(set(read)):
            said.append(f"{file} has the images of {read}, and the openings {opened}.")
    known = {line["id"] for line in _lines(left.runs / LEDGER) if "id" in line}
    if left.openings:
        test = json.loads((left.runs / left.search / "test.json").read_text())
        scored = [entry["id"] for entry in test["openings"]]
        if len(scored) != 1 or not set(scored) <= known:
            said.append(f"test.json has scores of {scored}, the ledger of {sorted(known)}.")
    return said


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def scores(left: Left) -> Any:
    """Return what the test of a search came to: each model's metrics, in their order."""
    file = left.runs / left.search / "test.json"
    if not file.exists():
        return None
    (opening,) = json.loads(file.read_text())["openings"]
    return [{key: score[key] for key in ("loss", "source_trial", "seed", "metrics")} for score in opening["scores"]]


# The files: each is whole, and nothing is left that only a running search needs.

PASSING = re.compile(r"^(\..+\.\d+|.+\.draft|\.shared-.+|last\.pt|begun|\.driver|.+-(wal|shm|journal))$")
"""Names of what is only there while something is written or trained."""


def file_differences(folder: Path) -> list[str]:
    """Return what is half written or left over below ``folder``."""
    said = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder)
        if PASSING.match(file.name) or any(part.endswith(".draft") for part in name.parts):
            said.append(f"{name} is left over.")
            continue
        try:
            if reader := READERS.get(file.suffix):
                reader(file)
        except Exception as error:  # whatever a reader of a damaged file trips over
            said.append(f"{name} cannot be read ({type(error).__name__}: {error}).")
    return said


def _tensors(file: Path) -> None:
    with safe_open(file, framework="numpy") as opened:
        for name in opened.keys():  # noqa: SIM118 (it is no dictionary)
            opened.get_slice(name).get_shape()


def _arrays(file: Path) -> None:
    with file.open("rb") as content, np.load(content) as opened:  # numpy leaves a damaged file open
        for name in opened:
            opened[name]


def _database(file: Path) -> None:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        (answer,) = database.execute("PRAGMA integrity_check").fetchone()
        if answer != "ok":
            raise ValueError(answer)


def _journal(file: Path) -> None:
    lines = _lines(file)
    if lines[-1]["left"] or with_checksums(lines) != file.read_bytes():
        raise ValueError("its checksums do not match")


def _page(file: Path) -> None:
    if not file.read_text().rstrip().endswith("</html>"):
        raise ValueError("the page does not end")


READERS: dict[str, Callable[[Path], object]] = {
    ".json": lambda file: json.loads(file.read_text()),
    ".jsonl": _lines,
    ".yaml": lambda file: yaml.safe_load(file.read_text()),
    ".safetensors": _tensors,
    ".npz": _arrays,
    ".db": _database,
    ".journal": _journal,
    ".html": _page,
}
