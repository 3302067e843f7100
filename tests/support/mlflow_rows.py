"""Comparing MLflow with the studies row by row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from optuna.trial import FrozenTrial, TrialState
from support.commands import stored

from search.study.records import epochs_of


def assert_mlflow_equals_the_studies(
    runs: Path,
    name: str,
    losses: tuple[str, ...],
    experiment_name: str | None = None,
    *,
    tracking: str | None = None,
    trials: Callable[[Path, str, str], list[FrozenTrial]] = stored,
) -> None:
    """Row by row: every trial has one run with its status, parameters and epochs; nothing is left running.

    ``trials`` reads a study, and ``tracking`` is the server, where they are not files of the runs folder.
    """
    client = MlflowClient(tracking_uri=tracking or f"sqlite:///{runs / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(experiment_name or name)
    assert experiment is not None
    runs_by_trial: dict[str, list[Any]] = {}
    for run in client.search_runs([experiment.experiment_id], f"tags.`holdout.search` = '{name}'", max_results=1000):
        assert run.info.status != "RUNNING", run.data.tags
        runs_by_trial.setdefault(run.data.tags.get("holdout.trial", ""), []).append(run)
    parents = {run.info.run_id: run for run in runs_by_trial.pop("")}
    statuses = {TrialState.COMPLETE: "FINISHED", TrialState.PRUNED: "KILLED", TrialState.FAIL: "FAILED"}
    for loss in losses:
        for study in (f"{loss}@noise", loss, f"{loss}@confirm", f"{loss}@final"):
            for trial in trials(runs, name, study):
                (run,) = runs_by_trial.pop(f"{name}/{study}/{trial.number}")
                assert run.info.status == statuses[trial.state]
                assert run.data.tags["holdout.state"] == trial.state.name
                assert run.data.params == {key: str(value) for key, value in trial.user_attrs["params"].items()}
                assert parents[run.data.tags["mlflow.parentRunId"]].data.tags["holdout.study"] == f"{name}/{study}"
                history = client.get_metric_history(run.info.run_id, "map_at_r")
                told = [entry["metrics"]["map_at_r"] for entry in epochs_of(trial) if entry["metrics"]]
                assert [metric.value for metric in sorted(history, key=lambda metric: metric.step)] == told
    assert not runs_by_trial
