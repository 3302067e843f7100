"""Runs that summarise others, the views of an experiment, and the tags that identify runs."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.tracking.described import DescribedData, DescribedSearch, SummaryRun

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment


# The tags by which MLflow's runs are found again and told apart, and those that MLflow itself reads.

KIND, CAMPAIGN, SEARCH, LOSS, STAGE, TRIAL = (
    f"holdout.{name}" for name in ("kind", "campaign", "search", "loss", "stage", "trial")
)
FILES = "holdout.files"
"""SHA-256 of the artifacts of a run that sums up others."""
MODEL = "holdout.model"
"""SHA-256 of a logged model's description, which has that of its weights."""
LOGGED_MODEL = "holdout.logged_model"
"""The id of the logged model that a version of a registered model is of."""
VERSIONS = "mlflow.modelVersions"
"""The versions that a logged model is registered as, in JSON."""
NAME, NOTE, PARENT, DATA_CONTEXT = "mlflow.runName", "mlflow.note.content", "mlflow.parentRunId", "mlflow.data.context"


@cache
def origin_tags() -> dict[str, str]:
    """Who writes, with which program and of which commit, where it runs from a checkout: MLflow's User and Source."""
    from mlflow.tracking.context.registry import resolve_tags
    from mlflow.utils.git_utils import get_git_commit

    commit = get_git_commit(str(Path(__file__).parent))
    return {
        "mlflow.user": resolve_tags()["mlflow.user"],
        "mlflow.source.name": "holdout",
        "mlflow.source.type": "LOCAL",
        **({"mlflow.source.git.commit": commit} if commit else {}),
    }


# Bringing a run that sums up others up to date: what it shows already is not written again.

TAG_LENGTH = 5000
DIGEST_LENGTH = 12
"""Of the split's digest, as the command line shows it; MLflow holds 36 characters at most."""


def bring_up_to_date(client: "MlflowClient", run_id: str, wanted: SummaryRun, now: int) -> None:
    """Write what the run ``run_id`` does not show yet of ``wanted``; ``now`` in milliseconds since 1970."""
    from mlflow.entities import Metric, Param, RunTag

    data = client.get_run(run_id).data
    tags = {**wanted.tags, **({NOTE: wanted.description} if wanted.description else {})}
    digest = _digest_of_files(wanted)
    if digest and data.tags.get(FILES) != digest:
        for name, text in wanted.texts.items():
            client.log_text(run_id, text, name)
        for path in wanted.files:
            client.log_artifact(run_id, str(path))
        tags[FILES] = digest
    new: dict[str, list[Any]] = {
        "metrics": [
            Metric(name, value, now, 0) for name, value in wanted.metrics.items() if data.metrics.get(name) != value
        ],
        "params": [Param(name, str(value)) for name, value in wanted.params.items() if name not in data.params],
        "tags": [
            RunTag(name, value) for name, text in tags.items() if data.tags.get(name) != (value := text[:TAG_LENGTH])
        ],
    }
    if any(new.values()):
        client.log_batch(run_id, **new)


def finish(client: "MlflowClient", run_id: str, end: int) -> None:
    """End the run at ``end``, in milliseconds since 1970, unless it ended then."""
    info = client.get_run(run_id).info
    if (info.status, info.end_time) != ("FINISHED", end):
        client.set_terminated(run_id, "FINISHED", end)


def log_data(client: "MlflowClient", run_id: str, data: DescribedData) -> None:
    """Say which images the run trains on; said again, MLflow writes nothing."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    kind, source = ("local", {"uri": data.root}) if data.root else ("code", {"tags": {"mlflow.source.name": data.name}})
    dataset = Dataset(
        name=data.name,
        digest=data.digest[:DIGEST_LENGTH],
        source_type=kind,
        source=json.dumps(source),
        profile=json.dumps(data.classes),
    )
    client.log_inputs(run_id, [DatasetInput(dataset, [InputTag(DATA_CONTEXT, "train")])])


def _digest_of_files(run: SummaryRun) -> str | None:
    """SHA-256 of all artifacts with their names; None without any."""
    contents = {path.name: path.read_bytes() for path in run.files}
    contents |= {name: text.encode() for name, text in run.texts.items()}
    if not contents:
        return None
    found = hashlib.sha256()
    for name, content in sorted(contents.items()):
        found.update(f"{name}:{len(content)}:".encode() + content)
    return found.hexdigest()


# The views of an experiment's runs: which columns its table has, which runs it shows and how they are sorted.
#
# MLflow shows no metric in the table of runs unless a view says so. What its button *Views* saves is a tag of the
# experiment, and so are these; the form is that of MLflow 3.17's pages, which other versions may pass over.

RESULTS = "holdout-results"
PREFIX = "mlflow.sharedViewState."
FIRST_COLUMNS = ("0", "attributes.`Run Name`", "runDateAndNestInfo", "duration")
"""The columns that every view has: the check box, the name, when it began and how long it took."""
WIDTHS, WIDTH = {"attributes.`Run Name`": 220}, 160
"""In pixels; ``WIDTH`` of a metric, whose whole name can be read then."""
KIND_OF_EXPERIMENT = ("mlflow.experimentKind", "custom_model_development")
"""What MLflow's pages call an experiment of model training; those of 3.17 ask the link and the browser instead."""


def keep_views(client: "MlflowClient", experiment: "Experiment", search: DescribedSearch) -> None:
    """Give the ``experiment`` our views, with this search's columns beside those that others need."""
    tags = dict([KIND_OF_EXPERIMENT])
    for key, (name, view) in _views(search).items():
        before = experiment.tags.get(f"{PREFIX}{key}")
        tags[f"{PREFIX}{key}"] = _merged(name, view, before)
    for key, value in tags.items():
        if experiment.tags.get(key) != value:
            client.set_experiment_tag(experiment.experiment_id, key, value)


def _views(search: DescribedSearch) -> dict[str, tuple[str, dict[str, Any]]]:
    """Each view's name and state, by its key."""
    objective = search.objective
    stages = [*(f"{stage}/{objective}" for stage in ("search", "confirmed", "test")), f"default/test_{objective}"]
    hyperparameters = list(dict.fromkeys(name for names in search.searched.values() for name in names))
    value = ["objective/value"]
    of_search = f"{_is('trial')} AND tags.`{STAGE}` = 'search'"
    grouped = {
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "param", "groupByData": name} for name in ("loss", "stage")],
        }
    }
    by_trial = ["loss", "stage", *hyperparameters]
    return {
        RESULTS: ("Results", _state(_is("loss"), stages, hyperparameters)),
        "holdout-trials": ("Trials of the search", _state(of_search, value, by_trial)),
        "holdout-stages": ("All trials by loss and stage", {**_state(_is("trial"), value, by_trial), **grouped}),
    }


def _is(kind: str) -> str:
    return f"tags.`{KIND}` = '{kind}'"


def _state(filtered: str, metrics: Sequence[str], params: Sequence[str]) -> dict[str, Any]:
    """The runs that ``filtered`` finds, those with the highest of the first of ``metrics`` first."""
    columns = [*(_column("metrics", name) for name in metrics), *(_column("params", name) for name in params)]
    return {
        "searchFilter": filtered,
        "orderByKey": columns[0],
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
    }


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{name}`"


def _merged(name: str, view: Mapping[str, Any], before: str | None) -> str:
    """The view as MLflow stores it, with the columns that were there ``before``; it was made when that one was."""
    stored = json.loads(before) if before else {}
    there = json.loads(stored["state"])["selectedColumns"] if stored else []
    columns = list(dict.fromkeys((*there, *view["selectedColumns"])))
    columns.sort(key=lambda column: not column.startswith("metrics."))
    created = stored.get("createdAt", int(time.time() * 1000))
    state = {
        **view,
        "selectedColumns": columns,
        "columnOrder": [*FIRST_COLUMNS, *columns],
        "columnWidths": WIDTHS | {column: WIDTH for column in columns if column.startswith("metrics.")},
    }
    return json.dumps({"name": name, "createdAt": created, "updatedAt": created, "state": json.dumps(state)})
