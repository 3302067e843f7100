"""The trials of a stored search as rows of a table, and its progress."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from search.records.records import Records
from search.stages import Stage, short_study_name
from search.trials import Tally, record_keys
from spaces.space import Value
from trainables.common.errors import InvalidInput, printable, without_password
from trainables.common.files import read_json, reading
from trainables.metrics import metric_name

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


# Trials as rows of a table.


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One trial.

    ``state`` is Optuna's name, ``value`` the trial's value (its last one if it was pruned), ``epochs`` the number of
    reported epochs, ``replicate_of`` the first trial with the same params, and ``outcome`` the reason for its end.
    """

    number: int
    state: str
    value: float | None
    params: Mapping[str, Value]
    seed: int | None
    epochs: int
    replicate_of: int | None
    outcome: str | None


def trial_row(trial: "FrozenTrial") -> TrialRow:
    attributes = trial.user_attrs
    reported = trial.intermediate_values
    return TrialRow(
        number=trial.number,
        state=trial.state.name,
        value=trial.value if trial.value is not None else reported[max(reported)] if reported else None,
        params=trial.params,
        seed=attributes.get("seed"),
        epochs=len(record_keys(trial)),
        replicate_of=attributes.get("replicate_of"),
        outcome=attributes.get("outcome"),
    )


def param_names(rows: Sequence[TrialRow]) -> list[str]:
    """Return the names of all params in the rows, in the order of their first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row.params))


def trial_rows(trials: "Sequence[FrozenTrial]") -> list[TrialRow]:
    """Return the rows of ``trials``, without waiting ones."""
    return [trial_row(trial) for trial in trials if trial.state.name != "WAITING"]


def trials_csv(tables: Mapping[str, Sequence[TrialRow]]) -> str:
    """Return the rows of all studies as CSV, with one column per param."""
    names = param_names([row for rows in tables.values() for row in rows])
    text = io.StringIO()
    columns = [name for name in TrialRow.__dataclass_fields__ if name != "params"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["study", *columns, *names])
    for study, rows in tables.items():
        for row in rows:
            cells = [study, *(getattr(row, name) for name in columns), *map(row.params.get, names)]
            writer.writerow([printable(cell) if isinstance(cell, str) else cell for cell in cells])
    return text.getvalue()


# The progress of a search.

FINISHED = {Stage.SEARCH: "searched", Stage.SELECT: "selected", Stage.TEST: "tested"}
"""The state after each stage."""


@dataclass(frozen=True, kw_only=True)
class StudyStatus:
    """One study's trials by state.

    ``running`` counts trials that a driver trains now, ``interrupted`` those that a killed or stopped driver left.
    ``planned`` is their maximum number, ``epoch_budget`` their total epochs (None: unlimited), ``ended_early`` the
    reason if there are fewer trials than planned, ``best`` the highest value of a complete trial.
    """

    study: str
    stage: Stage
    running: int
    interrupted: int
    complete: int
    pruned: int
    failed: int
    planned: int
    epochs: int
    epoch_budget: int | None
    ended_early: str | None
    best: float | None


@dataclass(frozen=True, kw_only=True)
class SearchStatus:
    """A search's studies; ``driver`` describes the process that runs it, ``problem`` says what cannot be read.

    ``finished`` is True if nothing is left of the stages in its file. ``baselines`` are the objectives of the networks
    without training on the validation classes.
    """

    name: str
    state: str
    finished: bool
    driver: str | None
    studies: tuple[StudyStatus, ...]
    problem: str | None = None
    objective: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)


def status_of(search: Records) -> SearchStatus:
    """Return the trials of every study of a search, by state, and the search's last stage.

    A search that cannot be read gets a ``problem`` instead of an error, so that the folder's others can be listed.
    """
    try:
        driver = search.folder.driver()
        studies = tuple(
            _study_status(search, loss, stage, tally, is_driven=driver is not None)
            for stage in Stage
            for loss in search.losses
            if (tally := search.tally(loss, stage)).trials
        )
        objective = metric_name(search.content["search"]["objective"])
        state, ends = _state(search, studies), list(FINISHED.values())
        finished = state in ends[ends.index(FINISHED[Stage(search.content["stages"][-1])]) :]  # `select` may go further
        return SearchStatus(
            name=search.name,
            state=state,
            finished=finished,
            driver=driver,
            studies=studies,
            objective=objective,
            baselines=_baselines(search, objective),
        )
    except InvalidInput as error:
        problem = error.sentences[0]
    except Exception as error:  # files of another version, or damaged ones, may raise anything
        reason = without_password(f"{type(error).__name__}: {error}").splitlines()[0]
        problem = f"this version of Holdout cannot read it ({reason})"
    return SearchStatus(name=search.name, state="unreadable", finished=True, driver=None, studies=(), problem=problem)


def _baselines(search: Records, objective: str) -> dict[str, float]:
    if not search.folder.baselines.exists():
        return {}
    with reading(search.folder.baselines):
        stored = read_json(search.folder.baselines)["validation"]
        return {name: float(values[objective]) for name, values in stored.items()}


def _study_status(search: Records, loss: str, stage: Stage, tally: Tally, *, is_driven: bool) -> StudyStatus:
    attributes = search.attributes(loss, stage)
    ended_early = attributes.get("ended_early")
    return StudyStatus(
        study=short_study_name(loss, stage),
        stage=stage,
        running=tally.running if is_driven else 0,
        interrupted=0 if is_driven else tally.running,
        complete=tally.complete,
        pruned=tally.pruned,
        failed=tally.failed,
        planned=tally.trials if ended_early else attributes.get("planned_trials", tally.trials),
        epochs=tally.epochs,
        epoch_budget=attributes.get("planned_epochs"),
        ended_early=ended_early,
        best=tally.best,
    )


def _state(search: Records, studies: tuple[StudyStatus, ...]) -> str:
    stages = {row.stage for row in studies}
    if search.folder.test.exists():
        return "tested"
    if search.openings_begun:
        return "opened without scores"
    if Stage.TEST in stages:
        return "training for the test"
    if search.folder.selection.exists():
        return "selected"
    if Stage.SELECT in stages:
        return "confirming"
    left = [row.stage for row in studies if row.complete + row.pruned + row.failed < row.planned]
    if not left and sum(row.stage is Stage.SEARCH for row in studies) == len(search.losses):
        return "searched"
    return "searching"
