"""The projection of studies to MLflow, and its writer in the background; nothing is read back into a study.

A search is one run, below it there is one run per loss, and below that one run per trial of any stage. The run of a
search is below that of its campaign, if it has one. Runs are identified by their tags. :meth:`Projection.project` reads
a trial from its study and writes the epochs, parameters, tags and status that its run lacks. The same method therefore
follows a running search, catches up after an outage and implements ``holdout sync``.
"""

import logging
import textwrap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from optuna.trial import FrozenTrial, TrialState

from search.stages import BASELINES, loss_of, search_of, trainings_of
from search.tracking.client import is_outage, open_client
from search.tracking.models import keep_model, keep_versions
from search.tracking.summary_runs import (
    CAMPAIGN,
    EPOCH_METRIC,
    ID,
    KIND,
    LOSS,
    NAME,
    NOTE,
    PARENT,
    SEARCH,
    STAGE,
    TRIAL,
    Content,
    bring_up_to_date,
    epoch_metrics,
    keep_view,
    log_values,
    origin_tags,
    outcome_tags,
    params_of,
)
from search.trials import epochs_of
from spaces.space import Value
from trainables.common.errors import Failure, counted, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import RunInfo

logger = logging.getLogger(__name__)

RUN_STATUS = {
    TrialState.COMPLETE: "FINISHED",
    TrialState.PRUNED: "KILLED",
    TrialState.FAIL: "FAILED",
    TrialState.RUNNING: "RUNNING",
}
PAGE = 1000
"""MLflow's maximum number of runs in one page."""
OF_TRIALS = ("dataset.", "split.", "model.", "training.")
"""The settings that are parameters of each trial's run."""
OF_BASELINES = ("dataset.", "split.", "model.")
"""The settings that are parameters of the run of a network without training."""


@dataclass(frozen=True, kw_only=True)
class Projected:
    """The known state of one trial in MLflow."""

    run_id: str
    epochs: int
    closed: bool


@dataclass(kw_only=True, eq=False)
class Projection:
    """The runs of one search in MLflow: creates missing runs and updates existing ones.

    A server may hold others of the same names, from other runs folders, so runs are found by ``id`` and
    ``campaign_id``.

    Attributes:
        uri, experiment: the server or database, and the name of the experiment.
        artifacts: where a new experiment has its artifacts; None: where the server puts them.
        settings: the entries of the search file that cannot change, by key such as ``training.lr`` (MLflow's parameters
            are immutable); ``settings_of`` the same for each loss.
        searched: the names of the hyperparameters of each loss.
        split: the digest of the split.
        campaign: the campaign of the search; empty without one.
    """

    uri: str
    experiment: str
    artifacts: str | None
    name: str
    id: str
    description: str
    objective: str
    settings: Mapping[str, Value]
    settings_of: Mapping[str, Mapping[str, Value]]
    searched: Mapping[str, Sequence[str]]
    split: str
    campaign: str
    campaign_id: str
    _known: dict[tuple[str, int], Projected] = field(default_factory=dict, init=False)

    @property
    def experiment_id(self) -> str:
        return self._server[1]

    @property
    def _client(self) -> "MlflowClient":
        return self._server[0]

    @cached_property
    def _server(self) -> "tuple[MlflowClient, str]":
        """The client, and the id of the experiment, which is created if it is missing."""
        client = open_client(self.uri)
        if (found := client.get_experiment_by_name(self.experiment)) is None:
            experiment_id = client.create_experiment(self.experiment, artifact_location=self.artifacts)
            found = client.get_experiment(experiment_id)
        if found.lifecycle_stage == "deleted":
            raise Failure(
                f"The experiment {self.experiment!r} is deleted in MLflow; restore it (`mlflow experiments restore "
                f"--experiment-id {found.experiment_id}`) and then run `holdout sync`."
            )
        keep_view(client, found, self.objective, [name for names in self.searched.values() for name in names])
        return client, str(found.experiment_id)

    @cached_property
    def _runs(self) -> "dict[tuple[str, str], RunInfo]":
        """The search's runs by kind, and by loss or trial; read once and after each error.

        An error may have hidden the creation of a run. If a lost response left duplicates, the newer one is kept, which
        is listed first.
        """
        token: str | None = None
        stored: dict[tuple[str, str], RunInfo] = {}
        of_search = f"tags.`{ID}` = '{self.id}' AND tags.`{SEARCH}` = '{self.name}'"
        while token != "":
            page = self._client.search_runs([self.experiment_id], of_search, max_results=PAGE, page_token=token)
            for run in page:
                tags = run.data.tags
                stored.setdefault((tags[KIND], tags.get(TRIAL) or tags.get(LOSS, "")), run.info)
            token = page.token or ""
        return stored

    @property
    def _of_campaign(self) -> dict[str, str]:
        return {CAMPAIGN: self.campaign, "holdout.campaign_id": self.campaign_id} if self.campaign else {}

    def _campaign_run(self, start: int | None) -> str:
        of_campaign = f"tags.`{ID}` = '{self.campaign_id}' AND tags.`{KIND}` = 'campaign'"
        if found := self._client.search_runs([self.experiment_id], of_campaign, max_results=1):
            return str(found[0].info.run_id)
        tags = {**self._of_campaign, KIND: "campaign", ID: self.campaign_id, NAME: self.campaign}
        return str(self._create(tags, start, None).run_id)

    def _summary_run(self, row: str, start: int | None) -> str:
        """Return the run of a loss or a network without training; if ``row`` is empty, that of the search."""
        runs, kind = self._runs, "loss" if row else "search"
        if (kind, row) not in runs:
            if row:
                above: str | None = self._summary_run("", start)
                names = {LOSS: row, NAME: f"{self.name}/{row}"}
            else:
                above = self._campaign_run(start) if self.campaign else None
                names = {NAME: self.name, NOTE: self.description}
            run = self._create({**self._tags(kind), **names}, start, above)
            self._begin(run.run_id, row)
            runs[kind, row] = run
        return str(runs[kind, row].run_id)

    def _tags(self, kind: str) -> dict[str, str]:
        return {KIND: kind, SEARCH: self.name, ID: self.id, "holdout.split": self.split, **self._of_campaign}

    def _create(self, tags: dict[str, str], start: int | None, parent: str | None) -> "RunInfo":
        tags = {**origin_tags(), **tags, **({PARENT: parent} if parent else {})}
        return self._client.create_run(self.experiment_id, start_time=start, tags=tags).info

    def _begin(self, run_id: str, row: str) -> None:
        """Write the settings of the run of a loss or a search that it lacks; a loss's hold for all of its trials."""
        settings = self.settings
        if row in BASELINES:
            settings = {"loss": row, **{key: of for key, of in settings.items() if key.startswith(OF_BASELINES)}}
        elif row:
            of_loss = self.settings_of[row].items()
            settings = {"loss": row, **{key: of for key, of in of_loss if key not in self.searched[row]}}
        bring_up_to_date(self._client, run_id, Content(params=settings), _now())

    def sum_up(self, row: str, wanted: Content, start: int | None, end: int | None) -> None:
        """Update the run of a loss or of a network without training; if ``row`` is empty, that of the search.

        ``start`` and ``end`` (None while it runs) are in milliseconds since 1970.
        """
        run_id = self._summary_run(row, start)
        self._begin(run_id, row)  # a process may have died right after creating the run
        self._sum_up(run_id, wanted, end)

    def log_model(self, loss: str, wanted: Content) -> str:
        """Log the model of a loss or a network without training, whose run exists, and return its id."""
        name = f"{self.name}/{loss}".removeprefix(f"{self.experiment}/")
        return keep_model(self._client, self._summary_run(loss, None), name, wanted, _now())

    def register(
        self, name: str, description: str, best: str, models: Mapping[str, tuple[str, Content]]
    ) -> dict[str, str]:
        """Register the models as :func:`search.tracking.models.keep_versions` does."""
        search = {KIND: "search", SEARCH: self.name, ID: self.id}
        return keep_versions(self._client, search, name, description, best, models)

    def sum_up_campaign(self, wanted: Content) -> None:
        """Update the run of its campaign, which ends with the last of its searches."""
        run_id = self._campaign_run(None)
        of_searches = f"tags.`holdout.campaign_id` = '{self.campaign_id}' AND tags.`{KIND}` = 'search'"
        searches = self._client.search_runs([self.experiment_id], of_searches, max_results=PAGE)
        self._sum_up(run_id, wanted, max((run.info.end_time or 0 for run in searches), default=None))

    def _sum_up(self, run_id: str, wanted: Content, end: int | None) -> None:
        bring_up_to_date(self._client, run_id, wanted, end or _now())
        if end is None:
            return
        info = self._client.get_run(run_id).info
        if (info.status, info.end_time) != ("FINISHED", end):
            self._client.set_terminated(run_id, "FINISHED", end)

    def project(self, study: str, trial: FrozenTrial) -> None:
        """Update the run of a trial of the study with this name."""
        if trial.state == TrialState.WAITING:
            return
        try:
            self._known[study, trial.number] = self._projected(study, trial)
        except Exception:
            self.__dict__.pop("_runs", None)
            raise

    def _projected(self, study: str, trial: FrozenTrial) -> Projected:
        known = self._known.get((study, trial.number))
        is_new = known is None
        known = known or self._open(study, trial)
        if known.closed:
            return known
        records = epochs_of(trial)
        closed = trial.state.is_finished()
        loss = loss_of(study)
        shared = {name: value for name, value in self.settings_of[loss].items() if name.startswith(OF_TRIALS)}
        params = {"loss": loss, "stage": trainings_of(study), **shared, **trial.params}
        log_values(
            self._client,
            known.run_id,
            metrics=epoch_metrics(trial, known.epochs),
            params=params_of(params) if is_new else [],
            tags=outcome_tags(trial) if closed else [],
        )
        if closed:  # last, so that an ended run is complete
            end = int(records[-1]["end"] * 1000) if records else None
            self._client.set_terminated(known.run_id, RUN_STATUS[trial.state], end)
        return Projected(run_id=known.run_id, epochs=len(records), closed=closed)

    def _open(self, study: str, trial: FrozenTrial) -> Projected:
        identity = f"{study}/{trial.number}"
        run, start, loss = self._runs.get(("trial", identity)), milliseconds(trial.datetime_start), loss_of(study)
        if run and (run.status != "FAILED" or run.start_time == start):  # else its study was begun anew
            if trial.state.is_finished() and run.status == RUN_STATUS[trial.state]:  # written last
                return Projected(run_id=run.run_id, epochs=0, closed=True)
            history = self._client.get_metric_history(run.run_id, EPOCH_METRIC)  # its writer may have died at any point
            epochs = max((metric.step for metric in history), default=0)
            return Projected(run_id=run.run_id, epochs=epochs, closed=False)
        tags = {
            **self._tags("trial"),
            LOSS: loss,
            STAGE: trainings_of(study),
            TRIAL: identity,
            NAME: identity.removeprefix(f"{self.experiment}/"),
            "holdout.seed": str(trial.user_attrs.get("seed")),
        }
        run = self._create(tags, start, self._summary_run(loss, start))
        return Projected(run_id=run.run_id, epochs=0, closed=False)


def milliseconds(moment: datetime | None) -> int | None:
    """Convert a time of Optuna to milliseconds since 1970."""
    return int(moment.timestamp() * 1000) if moment else None


def _now() -> int:
    return int(time.time() * 1000)


# Writing in the background.

RETRY_S = 5.0
SAY_S = 5.0
SHARE = 0.25
"""The maximum share of the time spent on MLflow while trials run."""


class Tracker:
    """Background writer that projects changed trials to MLflow in the background; training never waits for MLflow.

    ``projections`` are those of the searches, by name. Only the latest stored state of each trial is queued, so MLflow
    never shows anything that is not in a study, and skips states to catch up after an outage.
    """

    def __init__(self, projections: Mapping[str, Projection]) -> None:
        self._projections = projections
        self._waiting: dict[tuple[str, int], FrozenTrial] = {}
        self._changed = threading.Condition()
        self._begun = False
        self._closing = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    @property
    def behind(self) -> int:
        """The number of trials that are not up to date in MLflow."""
        return len(self._waiting)

    def mark(self, study: str, trial: FrozenTrial, *, begin: bool = True) -> None:
        """Queue a changed trial of the study with this name.

        Calls with ``begin=False`` do not start the writing, because importing MLflow would delay the workers.
        """
        with self._changed:
            self._begun |= begin
            self._waiting[study, trial.number] = trial
            self._changed.notify()

    def _work(self) -> None:
        while (key := self._next()) is not None:
            study, trial = key[0], self._waiting[key]
            start = time.monotonic()
            try:
                self._projections[search_of(study)].project(study, trial)
            except Exception as error:  # training continues after any error of MLflow
                self._tell(error)
                if is_outage(error):
                    if self._closing.is_set():
                        return
                    self._closing.wait(RETRY_S)
                    continue
            else:
                self._told = False
            with self._changed:
                if self._waiting[key] is trial:  # otherwise it changed meanwhile
                    del self._waiting[key]
            # MLflow's library competes with the driver for the interpreter, so it pauses while trials run. The pause is
            # limited, so that an outage is noticed soon after the first write, which includes the import.
            self._closing.wait(min((time.monotonic() - start) * (1 / SHARE - 1), RETRY_S))

    def _next(self) -> tuple[str, int] | None:
        """Wait for a queued trial and return the oldest; None if everything is written and the tracker is closing."""
        with self._changed:
            while not (self._waiting and (self._begun or self._closing.is_set())):
                if self._closing.is_set():
                    return None
                self._changed.wait()
            return next(iter(self._waiting))

    def _tell(self, error: Exception) -> None:
        if not self._told:
            # The database's own error, without the repetitions of SQLAlchemy and MLflow.
            cause = getattr(error.__cause__, "orig", None) or error
            reason = textwrap.shorten(f"{type(cause).__name__}: {without_password(str(cause))}", 160)
            logger.warning("MLflow cannot be written (%s). Training continues; the rest is written later.", reason)
        self._told = True

    def close(self, say: Callable[[str], None]) -> None:
        """Write the rest, reporting progress to ``say``, or give up in an outage; :attr:`behind` is what is missing."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        self._thread.join(SAY_S)
        while self._thread.is_alive():
            say(f"MLflow is {counted(self.behind, 'trial')} behind and catching up …")
            self._thread.join(SAY_S)
