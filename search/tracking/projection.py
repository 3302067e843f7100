"""MLflow as a projection of the studies, which are never read back from it.

One parent run a loss and stage, one child run a trial, found again by their tags. :meth:`Projection.project` reads a
trial from its study and brings its run to the same state: missing epochs, parameters, tags and status. The same method
therefore follows a search, catches up after an outage, and serves ``holdout sync``.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial, TrialState

from search.study.records import epochs_of
from search.study.study import LossStudy
from search.study.trial_value import best_value
from search.tracking.client import open_client
from spaces.value import Value
from trainables.training.epoch_record import EpochRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

RUN_STATUS = {
    TrialState.COMPLETE: "FINISHED",
    TrialState.PRUNED: "KILLED",
    TrialState.FAIL: "FAILED",
    TrialState.RUNNING: "RUNNING",
}
SEARCH_TAG, STUDY_TAG, TRIAL_TAG, PARENT_TAG = "holdout.search", "holdout.study", "holdout.trial", "mlflow.parentRunId"
BATCH = 1000  # metrics that one log_batch call takes, and runs that one search gives
TAG_LENGTH = 5000


@dataclass(frozen=True, kw_only=True)
class Projected:
    """What MLflow is known to hold of one trial."""

    run_id: str
    epochs: int
    steps: int
    closed: bool


@dataclass(frozen=True, kw_only=True)
class ParentRun:
    """What the parent run of a loss and stage shows when its trials have ended: ``files`` are texts by name."""

    tags: Mapping[str, str]
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, Value] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _StoredRun:
    run_id: str
    status: str


@dataclass(frozen=True)
class _Stored:
    """The runs of a search that MLflow has: parents by study, trials by their tag."""

    parents: dict[str, str] = field(default_factory=dict)
    trials: dict[str, _StoredRun] = field(default_factory=dict)

    def take(self, runs: "Iterable[Run]") -> None:
        """Remember ``runs``; of two with one name, as a lost answer may leave them, the newer one, which is first."""
        for run in runs:
            tags = run.data.tags
            if TRIAL_TAG in tags:
                self.trials.setdefault(tags[TRIAL_TAG], _StoredRun(run_id=run.info.run_id, status=run.info.status))
            elif STUDY_TAG in tags:
                self.parents.setdefault(tags[STUDY_TAG], run.info.run_id)


class Projection:
    """MLflow's picture of a search: makes runs where they are missing and brings them up to date."""

    def __init__(self, uri: str, experiment: str, artifacts: str | None, tags: Mapping[str, str]) -> None:
        self._uri = uri
        self._experiment = experiment
        self._artifacts = artifacts
        self._tags = dict(tags)
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._stored: _Stored | None = None
        self._known: dict[tuple[str, int], Projected] = {}

    def _connect(self) -> "MlflowClient":
        if self._client is not None:
            return self._client
        client = open_client(self._uri)
        found = client.get_experiment_by_name(self._experiment)
        self._experiment_id = (
            found.experiment_id
            if found
            else client.create_experiment(self._experiment, artifact_location=self._artifacts)
        )
        self._client = client
        return client

    def _runs(self) -> "_Stored":
        """The search's runs: asked for once, and again after an error, which may have lost the answer to a creation."""
        if self._stored is None:
            client, token, stored = self._connect(), None, _Stored()
            of_search = f"tags.`{SEARCH_TAG}` = '{self._tags[SEARCH_TAG]}'"
            while token is None or token:
                page = client.search_runs([self._experiment_id], of_search, max_results=BATCH, page_token=token)
                stored.take(page)
                token = page.token or ""
            self._stored = stored
        return self._stored

    def _parent(self, study: LossStudy) -> str:
        parents = self._runs().parents
        if study.name not in parents:
            tags = {**self._tags, STUDY_TAG: study.name, "mlflow.runName": study.name}
            parents[study.name] = self._connect().create_run(self._experiment_id, tags=tags).info.run_id
        return parents[study.name]

    def close_parent(self, study: LossStudy, parent_run: ParentRun) -> None:
        """Write what a loss came to into its parent run, with the files as artifacts, and end it."""
        from mlflow.entities import Metric, Param, RunTag

        client = self._connect()
        run_id = self._parent(study)
        now = int(time.time() * 1000)
        client.log_batch(
            run_id,
            metrics=[Metric(name, value, now, 0) for name, value in parent_run.metrics.items()],
            tags=[RunTag(name, value[:TAG_LENGTH]) for name, value in parent_run.tags.items()],
            params=[Param(name, str(value)) for name, value in parent_run.params.items()],
        )
        for name, text in parent_run.files.items():
            client.log_text(run_id, text, name)
        client.set_terminated(run_id, "FINISHED")

    def project(self, study: LossStudy, trial: FrozenTrial) -> None:
        """Bring ``trial``'s run to the state of the study."""
        if trial.state == TrialState.WAITING:
            return
        try:
            self._project(study, trial)
        except Exception:
            self._stored = None
            raise

    def _project(self, study: LossStudy, trial: FrozenTrial) -> None:
        known = self._known.get((study.name, trial.number))
        is_new = known is None
        known = known or self._open(study, trial)
        if known.closed:
            return
        records = epochs_of(trial)
        metrics = [
            *_epoch_metrics(records, known.epochs),
            *_step_metrics(trial, study.trial_value.objective, known.steps),
        ]
        closed = trial.state.is_finished()
        self._log(
            known.run_id, metrics, params=_params(trial) if is_new else [], tags=_outcome_tags(trial) if closed else []
        )
        if closed:  # last of all: a run that has ended is known to be whole
            end = int(records[-1]["end"] * 1000) if records else None
            self._connect().set_terminated(known.run_id, RUN_STATUS[trial.state], end)
        self._known[study.name, trial.number] = Projected(
            run_id=known.run_id, epochs=len(records), steps=max(trial.intermediate_values, default=0), closed=closed
        )

    def _log(self, run_id: str, metrics: list[Any], *, params: list[Any], tags: list[Any]) -> None:
        """Everything in one call, but for metrics beyond what one takes."""
        client = self._connect()
        while len(metrics) + len(params) + len(tags) > BATCH:
            client.log_batch(run_id, metrics=metrics[:BATCH])
            metrics = metrics[BATCH:]
        if metrics or params or tags:
            client.log_batch(run_id, metrics=metrics, params=params, tags=tags)

    def _open(self, study: LossStudy, trial: FrozenTrial) -> Projected:
        client, runs = self._connect(), self._runs().trials
        identity = f"{study.name}/{trial.number}"
        if identity in runs:
            return self._found(runs[identity], trial)
        tags = {
            **self._tags,
            TRIAL_TAG: identity,
            PARENT_TAG: self._parent(study),
            "mlflow.runName": identity,
            "holdout.seed": str(trial.user_attrs.get("seed")),
        }
        started = trial.datetime_start
        start = int(started.timestamp() * 1000) if started else None
        run_id = client.create_run(self._experiment_id, start_time=start, tags=tags).info.run_id
        return Projected(run_id=run_id, epochs=0, steps=0, closed=False)

    def _found(self, run: "_StoredRun", trial: FrozenTrial) -> Projected:
        """What is there of a run that another process may have been writing when it died."""
        if trial.state.is_finished() and run.status == RUN_STATUS[trial.state]:  # which is written last of all
            return Projected(run_id=run.run_id, epochs=0, steps=0, closed=True)
        epochs, steps = (self._logged(run.run_id, name) for name in ("train_loss", "value"))
        return Projected(run_id=run.run_id, epochs=epochs, steps=steps, closed=False)

    def _logged(self, run_id: str, name: str) -> int:
        """The last step of a metric that a run has."""
        history = self._connect().get_metric_history(run_id, name)
        return max((metric.step for metric in history), default=0)


def _epoch_metrics(records: Sequence[EpochRecord], known: int) -> list[Any]:
    """What each epoch came to, the epochs of all folds counted on."""
    from mlflow.entities import Metric

    rows = []
    for step, record in list(enumerate(records, start=1))[known:]:
        values = {"train_loss": record["loss"], "seconds": record["end"] - record["start"], **record["metrics"]}
        rows += [Metric(name, value, int(record["end"] * 1000), step) for name, value in values.items()]
    return rows


def _step_metrics(trial: FrozenTrial, objective: str, known: int) -> list[Any]:
    """The trial's value after each epoch, or after each fold with the fold's own."""
    from mlflow.entities import Metric

    rows = []
    for step, records in groupby(epochs_of(trial), key=lambda record: record.get("fold", record["epoch"])):
        if step > known and step in trial.intermediate_values:
            ended = list(records)
            values = {"value": trial.intermediate_values[step]}
            if "fold" in ended[-1]:
                values["fold_value"] = best_value(ended, objective)
            rows += [Metric(name, value, int(ended[-1]["end"] * 1000), step) for name, value in values.items()]
    return rows


def _params(trial: FrozenTrial) -> list[Any]:
    from mlflow.entities import Param

    return [Param(name, str(value)) for name, value in trial.user_attrs.get("params", {}).items()]


def _outcome_tags(trial: FrozenTrial) -> list[Any]:
    from mlflow.entities import RunTag

    tags = {"holdout.state": trial.state.name, "holdout.outcome": trial.user_attrs.get("outcome", "")}
    if failure := trial.user_attrs.get("failure"):
        tags["holdout.failure"] = failure["cause"]
    return [RunTag(name, value[:TAG_LENGTH]) for name, value in tags.items()]
