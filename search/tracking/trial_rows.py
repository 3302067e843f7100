"""A trial's epochs, parameters and end as rows of MLflow."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from optuna.trial import FrozenTrial

from search.study.records import epochs_of
from search.study.trial_value import best_value
from search.tracking.summary_runs import TAG_LENGTH
from search.tracking.tags import NOTE
from spaces.value import Value
from trainables.training.epoch_record import EpochRecord

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param, RunTag

EPOCH_METRIC, STEP_METRIC = "train/loss", "objective/value"
"""The metrics that every epoch, and every step of the objective, has; charts stand by what is before the slash."""


def epoch_metrics(records: Sequence[EpochRecord], known: int) -> "list[Metric]":
    """What each epoch after the ``known`` ones came to, the epochs of all folds counted on."""
    from mlflow.entities import Metric

    rows = []
    for step, record in list(enumerate(records, start=1))[known:]:
        values = {EPOCH_METRIC: record["loss"], "train/seconds": record["end"] - record["start"]}
        values |= {f"train/{unit}": count for unit, count in record.get("used", {}).items()}
        values |= {f"validation/{name}": value for name, value in record["metrics"].items()}
        rows += [Metric(name, value, int(record["end"] * 1000), step) for name, value in values.items()]
    return rows


def step_metrics(trial: FrozenTrial, objective: str, known: int) -> "list[Metric]":
    """The trial's value after each epoch beyond the ``known`` ones, or after each fold with the fold's own."""
    from mlflow.entities import Metric

    rows = []
    for step, records in groupby(epochs_of(trial), key=lambda record: record.get("fold", record["epoch"])):
        if step > known and step in trial.intermediate_values:
            ended = list(records)
            values = {STEP_METRIC: trial.intermediate_values[step]}
            if "fold" in ended[-1]:
                values["objective/fold_value"] = best_value(ended, objective)
            rows += [Metric(name, value, int(ended[-1]["end"] * 1000), step) for name, value in values.items()]
    return rows


def params(settings: Mapping[str, Value], trial: FrozenTrial) -> "list[Param]":
    """The trial's hyperparameters, before the ``settings`` that it shares with others."""
    from mlflow.entities import Param

    return [Param(name, str(value)) for name, value in {**settings, **trial.user_attrs.get("params", {})}.items()]


def outcome_tags(trial: FrozenTrial) -> "list[RunTag]":
    """How the trial ended, and why."""
    from mlflow.entities import RunTag

    outcome = trial.user_attrs.get("outcome", "")
    tags = {"holdout.state": trial.state.name, "holdout.outcome": outcome, NOTE: outcome}
    if failure := trial.user_attrs.get("failure"):
        tags["holdout.failure"] = failure["cause"]
    return [RunTag(name, value[:TAG_LENGTH]) for name, value in tags.items()]
