"""The studies of a search, read from Optuna's tables by SQL alone."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from optuna.distributions import json_to_distribution

SQLITE = "sqlite:///"
_TRIALS = (
    "SELECT study_name, number, trials.trial_id, CAST(state AS CHAR(8)) FROM trials JOIN studies USING (study_id)"
    " ORDER BY study_name, number"
)
_ATTRIBUTES = "SELECT trial_id, key, value_json FROM trial_user_attributes"
_PARAMS = "SELECT trial_id, param_name, param_value, distribution_json FROM trial_params"
_STEPS = "SELECT trial_id, step, intermediate_value FROM trial_intermediate_values"
_VALUES = "SELECT trial_id, value FROM trial_values"
_EPOCHS = "SELECT COUNT(*) FROM trial_user_attributes WHERE key LIKE 'epoch:%'"
_EPOCHS_OF_RUNNING = (
    "SELECT trials.trial_id, COUNT(key) FROM trials LEFT JOIN trial_user_attributes AS epochs"
    " ON epochs.trial_id = trials.trial_id AND key LIKE 'epoch:%' WHERE state = 'RUNNING' GROUP BY trials.trial_id"
)


@dataclass(frozen=True, kw_only=True)
class StoredTrial:
    """A trial as its rows have it. ``study`` is its name below the search's, ``steps`` are (step, value) in order."""

    search: str
    study: str
    number: int
    state: str
    values: tuple[float, ...]
    params: dict[str, Any]
    attributes: dict[str, Any]
    steps: tuple[tuple[int, float], ...]

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The records of its epochs, in order."""
        return [self.attributes[key] for key in sorted(self.attributes) if key.startswith("epoch:")]

    @property
    def name(self) -> str:
        """How sentences call it."""
        return f"{self.search}/{self.study} trial {self.number}"


def rows(url: str, statement: str) -> Sequence[tuple[Any, ...]]:
    """What a query gives of the database at ``url``, an SQLite file or a PostgreSQL."""
    if url.startswith(SQLITE):
        with closing(sqlite3.connect(f"file:{url.removeprefix(SQLITE)}?mode=ro", uri=True)) as file:
            return file.execute(statement).fetchall()
    with psycopg.connect(url.replace("+psycopg", ""), connect_timeout=10) as connection:
        return connection.execute(statement).fetchall()  # type: ignore[call-overload, no-any-return]


def read_trials(url: str, searches: Sequence[str]) -> list[StoredTrial]:
    """All trials of all studies of ``searches`` in a database."""
    attributes: dict[int, dict[str, Any]] = {}
    params: dict[int, dict[str, Any]] = {}
    steps: dict[int, list[tuple[int, float]]] = {}
    values: dict[int, list[float]] = {}
    for trial, key, content in rows(url, _ATTRIBUTES):
        attributes.setdefault(trial, {})[key] = json.loads(content)
    for trial, name, value, distribution in rows(url, _PARAMS):
        params.setdefault(trial, {})[name] = json_to_distribution(distribution).to_external_repr(value)
    for trial, step, value in rows(url, _STEPS):
        steps.setdefault(trial, []).append((step, value))
    for trial, value in rows(url, _VALUES):
        values.setdefault(trial, []).append(value)
    return [
        StoredTrial(
            search=study.partition("/")[0],
            study=study.partition("/")[2],
            number=number,
            state=state.strip(),
            values=tuple(values.get(trial, ())),
            params=params.get(trial, {}),
            attributes=attributes.get(trial, {}),
            steps=tuple(sorted(steps.get(trial, ()))),
        )
        for study, number, trial, state in rows(url, _TRIALS)
        if study.partition("/")[0] in searches
    ]


def count_epochs(url: str) -> int:
    """How many epochs are stored; 0 before there is a database, or while it is away."""
    found = _looked(url, _EPOCHS)
    return int(found[0][0]) if found else 0


def epochs_of_running(url: str) -> dict[int, int]:
    """The epochs that each running trial has stored, by the trial's row."""
    return dict(_looked(url, _EPOCHS_OF_RUNNING))  # type: ignore[arg-type]


def _looked(url: str, statement: str) -> Sequence[tuple[Any, ...]]:
    """As :func:`rows`; nothing where the database is away or is being made."""
    if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).exists():
        return []
    try:
        return rows(url, statement)
    except (sqlite3.Error, psycopg.Error):
        return []
