"""MLflow as a projection of the studies, which are never read back from it."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial, TrialState

from search.stages import loss_of, trainings_of
from search.study import LossStudy
from search.tracking.client import open_client
from search.tracking.described import DescribedModel, DescribedSearch, Registered, Registration, SummaryRun
from search.tracking.models import keep_model, keep_versions
from search.tracking.summary_runs import (
    CAMPAIGN,
    KIND,
    LOSS,
    NAME,
    NOTE,
    PARENT,
    RESULTS,
    SEARCH,
    STAGE,
    TAG_LENGTH,
    TRIAL,
    bring_up_to_date,
    finish,
    keep_views,
    log_data,
    origin_tags,
)
from search.trials import best_value, epochs_of
from spaces.space import Value
from trainables.spec import EpochRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, Run, RunTag


# A trial's epochs, parameters and end as rows of MLflow.

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


# MLflow as a projection of the studies, which are never read back from it.
#
# One run a search, below it one a loss, and below that one a trial, of whichever stage; the search's is below its
# campaign's, if it belongs to one. All are found again by their tags. :meth:`Projection.project` reads a trial from its
# study and brings its run to the same state: missing epochs, parameters, tags and status. The same method therefore
# follows a search, catches up after an outage, and serves ``holdout sync``.

RUN_STATUS = {
    TrialState.COMPLETE: "FINISHED",
    TrialState.PRUNED: "KILLED",
    TrialState.FAIL: "FAILED",
    TrialState.RUNNING: "RUNNING",
}
BATCH = 1000  # metrics that one log_batch call takes, and runs that one search gives
OF_TRIALS = ("dataset.", "split.", "model.", "training.")
"""The settings that a trial's run repeats: what it is trained with."""


@dataclass(frozen=True, kw_only=True)
class Projected:
    """What MLflow is known to hold of one trial."""

    run_id: str
    epochs: int
    steps: int
    closed: bool


@dataclass(frozen=True, kw_only=True)
class _StoredRun:
    run_id: str
    status: str


@dataclass(frozen=True)
class _Stored:
    """The runs of a search that MLflow has: those that sum up others by kind and loss, trials by their tag."""

    summaries: dict[tuple[str, str], str] = field(default_factory=dict)
    trials: dict[str, _StoredRun] = field(default_factory=dict)

    def take(self, runs: "Iterable[Run]") -> None:
        """Remember ``runs``; of two with one name, as a lost answer may leave them, the newer one, which is first."""
        for run in runs:
            tags = run.data.tags
            if TRIAL in tags:
                self.trials.setdefault(tags[TRIAL], _StoredRun(run_id=run.info.run_id, status=run.info.status))
            else:
                self.summaries.setdefault((tags[KIND], tags.get(LOSS, "")), run.info.run_id)


class Projection:
    """MLflow's picture of a search: makes runs where they are missing and brings them up to date."""

    def __init__(self, uri: str, experiment: str, artifacts: str | None, search: DescribedSearch) -> None:
        self._uri = uri
        self._experiment = experiment
        self._artifacts = artifacts
        self._search = search
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._stored: _Stored | None = None
        self._known: dict[tuple[str, int], Projected] = {}

    @property
    def page(self) -> str:
        """The address of the search's results below that of the MLflow server.

        MLflow 3.17 opens every experiment as one of generative AI unless ``workflowType`` says otherwise.
        """
        self._connect()
        return f"#/experiments/{self._experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={RESULTS}"

    def _connect(self) -> "MlflowClient":
        if self._client is not None:
            return self._client
        client = open_client(self._uri)
        if (found := client.get_experiment_by_name(self._experiment)) is None:
            experiment_id = client.create_experiment(self._experiment, artifact_location=self._artifacts)
            found = client.get_experiment(experiment_id)
        self._experiment_id = found.experiment_id
        keep_views(client, found, self._search)
        self._client = client
        return client

    def _runs(self) -> "_Stored":
        """The search's runs: asked for once, and again after an error, which may have lost the answer to a creation."""
        if self._stored is None:
            client, token, stored = self._connect(), None, _Stored()
            of_search = f"tags.`{SEARCH}` = '{self._search.name}'"
            while token is None or token:
                page = client.search_runs([self._experiment_id], of_search, max_results=BATCH, page_token=token)
                stored.take(page)
                token = page.token or ""
            self._stored = stored
        return self._stored

    def _campaign_run(self, campaign: str, start: int | None) -> str:
        client = self._connect()
        of_campaign = f"tags.`{CAMPAIGN}` = '{campaign}' AND tags.`{KIND}` = 'campaign'"
        if found := client.search_runs([self._experiment_id], of_campaign, max_results=1):
            run_id: str = found[0].info.run_id
            return run_id
        return self._create({KIND: "campaign", CAMPAIGN: campaign, NAME: campaign}, start, None)

    def _search_run(self, start: int | None) -> str:
        search, runs = self._search, self._runs().summaries
        key = ("search", "")
        if key not in runs:
            above = self._campaign_run(search.campaign, start) if search.campaign else None
            run_id = self._create({**self._tags("search"), NAME: search.name, NOTE: search.description}, start, above)
            self._begin(run_id, search.settings)
            runs[key] = run_id
        return runs[key]

    def _loss_run(self, loss: str, start: int | None) -> str:
        runs = self._runs().summaries
        key = ("loss", loss)
        if key not in runs:
            above = self._search_run(start)
            tags = {**self._tags("loss"), LOSS: loss, NAME: self._short(f"{self._search.name}/{loss}")}
            run_id = self._create(tags, start, above)
            self._begin(run_id, self._settings_of_loss(loss))
            runs[key] = run_id
        return runs[key]

    def _settings_of_loss(self, loss: str) -> dict[str, Value]:
        """Those that are the same in all of its trials."""
        searched, settings = self._search.searched[loss], self._search.settings_of[loss]
        return {"loss": loss, **{name: value for name, value in settings.items() if name not in searched}}

    def _tags(self, kind: str) -> dict[str, str]:
        search = self._search
        campaign = {CAMPAIGN: search.campaign} if search.campaign else {}
        return {KIND: kind, SEARCH: search.name, "holdout.split": search.data.digest, **campaign}

    def _short(self, name: str) -> str:
        """A run's name, which does not repeat that of its experiment."""
        return name.removeprefix(f"{self._experiment}/")

    def _create(self, tags: dict[str, str], start: int | None, parent: str | None) -> str:
        above = {PARENT: parent} if parent else {}
        run = self._connect().create_run(self._experiment_id, start_time=start, tags={**origin_tags(), **tags, **above})
        run_id: str = run.info.run_id
        return run_id

    def _begin(self, run_id: str, settings: Mapping[str, Value]) -> None:
        """Say what a run of a loss or the search begins with; said again, nothing is written."""
        client = self._connect()
        bring_up_to_date(client, run_id, SummaryRun(params=settings), _now())
        log_data(client, run_id, self._search.data)

    def sum_up_loss(self, loss: str, wanted: SummaryRun, start: int | None, end: int | None) -> None:
        """Show what a loss came to from ``start`` to ``end`` (None: it goes on), in milliseconds since 1970."""
        run_id = self._loss_run(loss, start)
        self._begin(run_id, self._settings_of_loss(loss))  # a process that died may have made the run alone
        self._sum_up(run_id, wanted, end)

    def log_model(self, loss: str, wanted: DescribedModel) -> str:
        """Have the chosen model of ``loss``, whose run is there, and return its id."""
        name = self._short(f"{self._search.name}/{loss}")
        return keep_model(self._connect(), self._loss_run(loss, None), name, wanted, _now())

    def register(self, wanted: Registration, models: Mapping[str, tuple[str, DescribedModel]]) -> Registered:
        """Have the models of each loss, given with their ids, registered.

        Raises:
            Mistakes: the name is that of another registered model.
        """
        return keep_versions(self._connect(), self._search.name, wanted, models)

    def sum_up_search(self, wanted: SummaryRun, start: int | None, end: int | None) -> None:
        """Show what the search came to from ``start`` to ``end`` (None: it goes on), in milliseconds since 1970."""
        run_id = self._search_run(start)
        self._begin(run_id, self._search.settings)
        self._sum_up(run_id, wanted, end)

    def sum_up_campaign(self, name: str, wanted: SummaryRun) -> None:
        """Show what the campaign came to, which ended with the last of its searches."""
        client = self._connect()
        run_id = self._campaign_run(name, None)
        of_searches = f"tags.`{CAMPAIGN}` = '{name}' AND tags.`{KIND}` = 'search'"
        searches = client.search_runs([self._experiment_id], of_searches, max_results=BATCH)
        self._sum_up(run_id, wanted, max((run.info.end_time or 0 for run in searches), default=None))

    def _sum_up(self, run_id: str, wanted: SummaryRun, end: int | None) -> None:
        client = self._connect()
        bring_up_to_date(client, run_id, wanted, end or _now())
        if end is not None:
            finish(client, run_id, end)

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
            self._known[study.name, trial.number] = known
            return
        records = epochs_of(trial)
        metrics = [
            *epoch_metrics(records, known.epochs),
            *step_metrics(trial, study.trial_value.objective, known.steps),
        ]
        if is_new:
            log_data(self._connect(), known.run_id, self._search.data)
        closed = trial.state.is_finished()
        self._log(
            known.run_id,
            metrics,
            params=params(self._settings_of(study), trial) if is_new else [],
            tags=outcome_tags(trial) if closed else [],
        )
        if closed:  # last of all: a run that has ended is known to be whole
            end = int(records[-1]["end"] * 1000) if records else None
            self._connect().set_terminated(known.run_id, RUN_STATUS[trial.state], end)
        self._known[study.name, trial.number] = Projected(
            run_id=known.run_id, epochs=len(records), steps=max(trial.intermediate_values, default=0), closed=closed
        )

    def _settings_of(self, study: LossStudy) -> dict[str, Value]:
        loss = loss_of(study.name)
        shared = {name: value for name, value in self._search.settings_of[loss].items() if name.startswith(OF_TRIALS)}
        return {"loss": loss, "stage": trainings_of(study.name), **shared}

    def _log(self, run_id: str, metrics: list[Any], *, params: list[Any], tags: list[Any]) -> None:
        """Everything in one call, but for metrics beyond what one takes."""
        client = self._connect()
        while len(metrics) + len(params) + len(tags) > BATCH:
            client.log_batch(run_id, metrics=metrics[:BATCH])
            metrics = metrics[BATCH:]
        if metrics or params or tags:
            client.log_batch(run_id, metrics=metrics, params=params, tags=tags)

    def _open(self, study: LossStudy, trial: FrozenTrial) -> Projected:
        runs = self._runs().trials
        identity = f"{study.name}/{trial.number}"
        if identity in runs:
            return self._found(runs[identity], trial)
        start, loss = milliseconds(trial.datetime_start), loss_of(study.name)
        tags = {
            **self._tags("trial"),
            LOSS: loss,
            STAGE: trainings_of(study.name),
            TRIAL: identity,
            NAME: self._short(identity),
            "holdout.seed": str(trial.user_attrs.get("seed")),
        }
        run_id = self._create(tags, start, self._loss_run(loss, start))
        return Projected(run_id=run_id, epochs=0, steps=0, closed=False)

    def _found(self, run: "_StoredRun", trial: FrozenTrial) -> Projected:
        """What is there of a run that another process may have been writing when it died."""
        if trial.state.is_finished() and run.status == RUN_STATUS[trial.state]:  # which is written last of all
            return Projected(run_id=run.run_id, epochs=0, steps=0, closed=True)
        epochs, steps = (self._logged(run.run_id, name) for name in (EPOCH_METRIC, STEP_METRIC))
        return Projected(run_id=run.run_id, epochs=epochs, steps=steps, closed=False)

    def _logged(self, run_id: str, name: str) -> int:
        """The last step of a metric that a run has."""
        history = self._connect().get_metric_history(run_id, name)
        return max((metric.step for metric in history), default=0)


def milliseconds(moment: datetime | None) -> int | None:
    """A moment of Optuna's as MLflow counts it."""
    return int(moment.timestamp() * 1000) if moment else None


def _now() -> int:
    return int(time.time() * 1000)
