"""MLflow, wrapped once: a projection of the studies, written in the background and never read back as truth.

One parent run a loss and stage, one child run a trial, found again by their tags. A trial that changed is marked; the
background thread reads it from its study and brings its run to the same state: missing epochs, parameters, tags and
status. The same function therefore follows a search, catches up after an outage, and serves ``holdout sync``.
"""

import logging
import os
import queue
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from optuna.trial import FrozenTrial, TrialState

from search.config.secrets import without_password
from search.study.names import search_of
from search.study.study import LossStudy, epochs_of
from search.study.trial_queue import RunningTrial
from search.study.trial_value import best_value
from trainables.train import EpochRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

RUN_STATUS = {
    TrialState.COMPLETE: "FINISHED",
    TrialState.PRUNED: "KILLED",
    TrialState.FAIL: "FAILED",
    TrialState.RUNNING: "RUNNING",
}
RETRY_S = 5.0
SQLITE = "sqlite:///"
TRIAL_TAG, PARENT_TAG = "holdout.trial", "mlflow.parentRunId"
BATCH = 1000  # metrics that one log_batch call takes
TAG_LENGTH = 5000


@dataclass(frozen=True, kw_only=True)
class Projected:
    """What MLflow is known to hold of one trial."""

    run_id: str
    epochs: int
    steps: int
    closed: bool


def _client(uri: str) -> "MlflowClient":
    """A quiet client that asks once: we ask again ourselves, in the background."""
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    for library in ("mlflow", "urllib3"):
        logging.getLogger(library).setLevel(logging.ERROR)
    from mlflow import (
        MlflowClient,  # not `import mlflow`: beside our folder that would succeed without the library
    )

    if uri.startswith(SQLITE) and not (place := Path(uri.removeprefix(SQLITE))).exists():
        with FileLock(f"{place}.lock"):
            if not place.exists():
                # Its migrations, cut short by a kill, could not be taken up again: the tables come whole or not at all.
                draft = place.with_name(f"{place.name}.draft")
                draft.unlink(missing_ok=True)
                MlflowClient(tracking_uri=f"{SQLITE}{draft}").search_experiments(max_results=1)
                draft.rename(place)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def login_refusal(uri: str) -> str | None:
    """Why the server at ``uri`` does not let this user in; None where it does."""
    from mlflow.exceptions import MlflowException

    try:
        _client(uri).search_experiments(max_results=1)
    except MlflowException as error:
        return f"HTTP status {error.get_http_status_code()}"
    return None


class Projection:
    """MLflow's picture of a search: makes runs where they are missing and brings them up to date."""

    def __init__(self, uri: str, experiment: str, artifacts: str | None, tags: Mapping[str, str]) -> None:
        self._uri = uri
        self._experiment = experiment
        self._artifacts = artifacts
        self._tags = dict(tags)
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._parents: dict[str, str] = {}
        self._known: dict[tuple[str, int], Projected] = {}

    def _connect(self) -> "MlflowClient":
        if self._client is not None:
            return self._client
        client = _client(self._uri)
        found = client.get_experiment_by_name(self._experiment)
        self._experiment_id = (
            found.experiment_id
            if found
            else client.create_experiment(self._experiment, artifact_location=self._artifacts)
        )
        self._client = client
        return client

    def _find(self, tag: str, value: str) -> Any:
        found = self._connect().search_runs([self._experiment_id], f"tags.`{tag}` = '{value}'", max_results=1)
        return found[0] if found else None

    def _parent(self, study: LossStudy) -> str:
        if study.name not in self._parents:
            client = self._connect()
            run = self._find("holdout.study", study.name)
            if run is None:
                tags = {**self._tags, "holdout.study": study.name, "mlflow.runName": study.name}
                run = client.create_run(self._experiment_id, tags=tags)
            self._parents[study.name] = run.info.run_id
        return self._parents[study.name]

    def close_parent(
        self,
        study: LossStudy,
        metrics: Mapping[str, float],
        tags: Mapping[str, str],
        chosen: Mapping[str, Any],
        files: Mapping[str, str],
    ) -> None:
        """Write what a loss came to into its parent run, with texts as artifacts by name, and end it."""
        from mlflow.entities import Metric, Param, RunTag

        client = self._connect()
        run_id = self._parent(study)
        now = int(time.time() * 1000)
        client.log_batch(
            run_id,
            metrics=[Metric(name, value, now, 0) for name, value in metrics.items()],
            tags=[RunTag(name, value[:TAG_LENGTH]) for name, value in tags.items()],
            params=[Param(name, str(value)) for name, value in chosen.items()],
        )
        for name, text in files.items():
            client.log_text(run_id, text, name)
        client.set_terminated(run_id, "FINISHED")

    def project(self, study: LossStudy, trial: FrozenTrial) -> None:
        """Bring ``trial``'s run to the state of the study."""
        if trial.state == TrialState.WAITING:
            return
        known = self._known.get((study.name, trial.number)) or self._open(study, trial)
        if known.closed:
            return
        client = self._connect()
        records = epochs_of(trial)
        metrics = [
            *_epoch_metrics(records, known.epochs),
            *_step_metrics(trial, study.trial_value.objective, known.steps),
        ]
        for start in range(0, len(metrics), BATCH):
            client.log_batch(known.run_id, metrics=metrics[start : start + BATCH])
        closed = trial.state.is_finished()
        if closed:
            client.log_batch(known.run_id, tags=_outcome_tags(trial))
            end = int(records[-1]["end"] * 1000) if records else None
            client.set_terminated(known.run_id, RUN_STATUS[trial.state], end)
        self._known[study.name, trial.number] = Projected(
            run_id=known.run_id, epochs=len(records), steps=max(trial.intermediate_values, default=0), closed=closed
        )

    def _open(self, study: LossStudy, trial: FrozenTrial) -> Projected:
        from mlflow.entities import Param

        client = self._connect()
        identity = f"{study.name}/{trial.number}"
        run = self._find(TRIAL_TAG, identity)
        if run is None:
            tags = {
                **self._tags,
                TRIAL_TAG: identity,
                PARENT_TAG: self._parent(study),
                "mlflow.runName": identity,
                "holdout.seed": str(trial.user_attrs.get("seed")),
            }
            started = trial.datetime_start
            start = int(started.timestamp() * 1000) if started else None
            run = client.create_run(self._experiment_id, start_time=start, tags=tags)
            params = trial.user_attrs.get("params", {})
            client.log_batch(run.info.run_id, params=[Param(name, str(value)) for name, value in params.items()])
        # What is there is asked for rather than remembered: another process may have written it before it died.
        epochs, steps = (self._logged(run.info.run_id, name) for name in ("train_loss", "value"))
        return Projected(
            run_id=run.info.run_id,
            epochs=epochs,
            steps=steps,
            closed=trial.state.is_finished()
            and run.info.status == RUN_STATUS[trial.state]
            and (epochs, steps) == (len(epochs_of(trial)), max(trial.intermediate_values, default=0)),
        )

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


def _outcome_tags(trial: FrozenTrial) -> list[Any]:
    from mlflow.entities import RunTag

    tags = {"holdout.state": trial.state.name, "holdout.outcome": trial.user_attrs.get("outcome", "")}
    if failure := trial.user_attrs.get("failure"):
        tags["holdout.failure"] = failure["cause"]
    return [RunTag(name, value[:TAG_LENGTH]) for name, value in tags.items()]


class Tracker:
    """Projects marked trials in the background. Training never waits for MLflow, and an outage costs it nothing.

    ``projections`` are those of the searches, by name.
    """

    def __init__(self, projections: Mapping[str, Projection]) -> None:
        self._projections = projections
        self._marks: queue.SimpleQueue[tuple[LossStudy, int] | None] = queue.SimpleQueue()
        self._missing: dict[tuple[str, int], tuple[LossStudy, int]] = {}
        self._changed: dict[tuple[str, int], tuple[LossStudy, int]] = {}
        self._begun = False
        self._closing = threading.Event()
        self._outage = False
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def __call__(self, job: RunningTrial, trial: FrozenTrial) -> None:
        """Take a job's news: its trial changed.

        Nothing is written before the first epoch: MLflow's start would take the cores from the actors' own.
        """
        self._begun = self._begun or bool(epochs_of(trial)) or trial.state.is_finished()
        self._changed[job.course.study.name, job.number] = (job.course.study, job.number)
        if self._begun:
            for change in self._changed.values():
                self._marks.put(change)
            self._changed.clear()

    def _work(self) -> None:
        while True:
            self._collect()
            for key, (study, number) in list(self._missing.items()):
                try:
                    self._projections[search_of(study.name)].project(study, study.trial(number))
                except Exception as error:  # whatever MLflow meets, training goes on
                    self._say_outage(error)
                    break
                del self._missing[key]
                self._outage = False
            if self._closing.is_set() and (self._outage or (not self._missing and self._marks.empty())):
                return
            if self._outage:
                self._closing.wait(RETRY_S)

    def _collect(self) -> None:
        """Take all marks; wait for one only when nothing is left to write."""
        idle = not self._missing
        while idle or not self._marks.empty():
            mark = self._marks.get()
            if mark is None:
                return
            study, number = mark
            self._missing[study.name, number] = (study, number)
            idle = False

    def _say_outage(self, error: Exception) -> None:
        if not self._outage:
            reason = textwrap.shorten(f"{type(error).__name__}: {without_password(str(error))}", 160)
            logger.warning("MLflow cannot be written (%s). Training goes on; what is missing is written later.", reason)
        self._outage = True

    def close(self) -> bool:
        """Write what is left; whether MLflow now equals the studies."""
        self._closing.set()
        self._marks.put(None)
        self._thread.join()
        return not self._missing
