"""Whether MLflow's own tables say what the studies say."""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg

from soak.oracle.studies import StoredTrial

SQLITE = "sqlite:///"
STATUS = {"COMPLETE": "FINISHED", "PRUNED": "KILLED", "FAIL": "FAILED"}


def tracking_differences(trials: Sequence[StoredTrial], url: str, searches: Sequence[str]) -> list[str]:
    """Where the database of MLflow at ``url`` differs from the trials of ``searches``."""
    tags = _pairs(url, "SELECT run_uuid, key, value FROM tags")
    params = _pairs(url, "SELECT run_uuid, key, value FROM params")
    metrics = defaultdict[tuple[str, str], list[tuple[int, float]]](list)
    for run, key, step, value in rows(url, "SELECT run_uuid, key, step, value FROM metrics"):
        metrics[run, key].append((step, value))
    status = dict(rows(url, "SELECT run_uuid, status FROM runs WHERE lifecycle_stage = 'active'"))
    ours = [run for run in status if tags[run].get("holdout.search") in searches]
    said = [
        f"MLflow's run of {tags[run].get('mlflow.runName')} is RUNNING." for run in ours if status[run] == "RUNNING"
    ]
    above = [(tags[run]["holdout.search"], tags[run].get("holdout.loss", "")) for run in ours if _is_above(tags[run])]
    losses = {(trial.search, trial.study.partition("@")[0]) for trial in trials}
    wanted = sorted([*((search, "") for search in searches), *losses])
    if sorted(above) != wanted:
        said.append(f"MLflow has the runs {sorted(above)} of searches and losses, not {wanted}.")
    by_trial = defaultdict[str, list[str]](list)
    for run in ours:
        if "holdout.trial" in tags[run]:
            by_trial[tags[run]["holdout.trial"]].append(run)
    for trial in trials:
        runs = by_trial.pop(f"{trial.search}/{trial.study}/{trial.number}", [])
        if len(runs) != 1:
            said.append(f"MLflow has {len(runs)} runs of {trial.name}.")
            continue
        said += _of_one(trial, status[runs[0]], params[runs[0]], metrics, runs[0])
    said += [f"MLflow has a run of {name}, which no study has." for name in by_trial]
    return said


def rows(url: str, statement: str) -> Sequence[tuple[Any, ...]]:
    """What a query gives of MLflow's database at ``url``, an SQLite file or a PostgreSQL."""
    if url.startswith(SQLITE):
        with closing(sqlite3.connect(f"file:{url.removeprefix(SQLITE)}?mode=ro", uri=True)) as file:
            return file.execute(statement).fetchall()
    with psycopg.connect(url.replace("+psycopg", ""), connect_timeout=10) as connection:
        return connection.execute(statement).fetchall()  # type: ignore[call-overload, no-any-return]


def _pairs(url: str, statement: str) -> defaultdict[str, dict[str, str]]:
    found = defaultdict[str, dict[str, str]](dict)
    for run, key, value in rows(url, statement):
        found[run][key] = value
    return found


def _is_above(tags: dict[str, str]) -> bool:
    return tags["holdout.kind"] in ("search", "loss")


def _of_one(
    trial: StoredTrial,
    status: str,
    params: dict[str, str],
    metrics: defaultdict[tuple[str, str], list[tuple[int, float]]],
    run: str,
) -> list[str]:
    said = []
    if status != STATUS.get(trial.state):
        said.append(f"MLflow's run of {trial.name} is {status}, the trial {trial.state}.")
    wrong = {key: value for key, value in trial.params.items() if params.get(key) != str(value)}
    if wrong:
        said.append(f"MLflow's run of {trial.name} has other params than {wrong}.")
    losses = list(enumerate([record["loss"] for record in trial.epochs], start=1))
    for name, wanted in {"train/loss": losses, "objective/value": list(trial.steps)}.items():
        if (found := sorted(metrics[run, name])) != wanted:
            said.append(f"MLflow's run of {trial.name} has {name} {found}, the trial {wanted}.")
    return said
