"""A row-by-row comparison of MLflow with the studies."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from optuna.trial import TrialState
from support.commands import stored
from support.journals import epochs_in


def studies_of(loss: str) -> tuple[str, ...]:
    """Return the names of a loss's studies, without the search's name."""
    return tuple(f"{loss}{stage}" for stage in ("", "@confirm", "@final"))


def assert_mlflow_equals_the_studies(
    runs: Path,
    name: str,
    losses: tuple[str, ...],
    experiment_name: str | None = None,
    *,
    tracking: str | None = None,
) -> None:
    """Check that every trial has one run with its status, parameters and epochs, below the runs of its loss and search.

    All runs have their origin and their split, and none is RUNNING. ``tracking`` is the server, if it is
    no file of the runs folder.
    """
    client = MlflowClient(tracking_uri=tracking or f"sqlite:///{runs / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(experiment_name or name)
    assert experiment is not None
    runs_by_trial: dict[str, list[Any]] = {}
    split = json.loads((runs / name / "split.json").read_text())["digest"]
    for run in client.search_runs([experiment.experiment_id], f"tags.`holdout.search` = '{name}'", max_results=1000):
        assert run.info.status != "RUNNING", run.data.tags
        runs_by_trial.setdefault(run.data.tags.get("holdout.trial", ""), []).append(run)
        assert run.data.tags["mlflow.source.name"] == "holdout"
        assert run.data.tags["mlflow.user"]
        assert run.data.tags["holdout.split"] == split
    above = {run.info.run_id: run for run in runs_by_trial.pop("")}
    kinds = [run.data.tags["holdout.kind"] for run in above.values()]
    begun = [loss for loss in losses if any(stored(runs, name, study) for study in studies_of(loss))]
    assert sorted(kinds) == [*["loss"] * len(begun), "search"]
    statuses = {TrialState.COMPLETE: "FINISHED", TrialState.PRUNED: "KILLED", TrialState.FAIL: "FAILED"}
    for loss in losses:
        for study in studies_of(loss):
            for trial in stored(runs, name, study):
                (run,) = runs_by_trial.pop(f"{name}/{study}/{trial.number}")
                assert run.info.status == statuses[trial.state]
                assert run.data.tags["holdout.state"] == trial.state.name
                proposed = {key: str(value) for key, value in trial.params.items()}
                assert run.data.params.items() >= proposed.items()
                stage = study.partition("@")[2] or "search"
                assert (run.data.params["loss"], run.data.params["stage"]) == (loss, stage)
                assert (run.data.tags["holdout.loss"], run.data.tags["holdout.stage"]) == (loss, stage)
                assert run.data.tags["mlflow.note.content"] == trial.user_attrs["outcome"]
                of_loss = above[run.data.tags["mlflow.parentRunId"]].data.tags
                assert (of_loss["holdout.kind"], of_loss["holdout.loss"]) == ("loss", loss)
                assert above[of_loss["mlflow.parentRunId"]].data.tags["holdout.kind"] == "search"
                epochs = list(enumerate(epochs_in(trial), start=1))
                for metric, told in {
                    "validation/map_at_r": [
                        (n, entry["metrics"]["map_at_r"]) for n, entry in epochs if entry["metrics"]
                    ],
                    "train/loss": [(n, entry["loss"]) for n, entry in epochs],
                    "objective/value": sorted(trial.intermediate_values.items()),
                }.items():
                    history = client.get_metric_history(run.info.run_id, metric)
                    assert sorted((entry.step, entry.value) for entry in history) == told, metric
    assert not runs_by_trial


def everything_in(database: Path) -> tuple[list[str], dict[Path, int]]:
    """Return all rows of a database of MLflow's and the modification time of each artifact beside it."""
    with sqlite3.connect(database) as opened:
        rows = list(opened.iterdump())
    artifacts = (database.parent / "mlartifacts").rglob("*")
    return rows, {path: path.stat().st_mtime_ns for path in artifacts}
