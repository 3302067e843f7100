"""The content of runs and models in MLflow, and the view of an experiment."""

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from optuna.trial import FrozenTrial

from search.addresses import RESULTS
from search.trials import epochs_of
from spaces.space import Value
from trainables.common.files import DAMAGED

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Metric, Param, RunTag


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of a model, or of the run of a loss, a search or a campaign.

    ``description`` is in Markdown. The artifacts of a run are ``texts`` and ``files``, that of a model its one folder.
    """

    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, Value] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[Path] = ()


# The tags that identify runs, and the tags that MLflow reads.

KIND, CAMPAIGN, SEARCH, ID, LOSS, STAGE, TRIAL = (
    f"holdout.{name}" for name in ("kind", "campaign", "search", "id", "loss", "stage", "trial")
)
FILES = "holdout.files"
"""SHA-256 of the artifacts of a summary run."""
MODEL = "holdout.model"
"""SHA-256 of a logged model's description, which contains the digest of its weights."""
LOGGED_MODEL = "holdout.logged_model"
"""The id of the logged model of a registered version."""
VERSIONS = "mlflow.modelVersions"
"""The registered versions of a logged model, in JSON."""
NAME, NOTE, PARENT = "mlflow.runName", "mlflow.note.content", "mlflow.parentRunId"


@cache
def origin_tags() -> dict[str, str]:
    """Return the tags for MLflow's User and Source: the user, the program, and its commit in a checkout."""
    from mlflow.tracking.context.registry import resolve_tags
    from mlflow.utils.git_utils import get_git_commit

    commit = get_git_commit(str(Path(__file__).parent))
    return {
        "mlflow.user": resolve_tags().get("mlflow.user", f"uid {os.getuid()}"),  # one without a name, in a container
        "mlflow.source.name": "holdout",
        "mlflow.source.type": "LOCAL",
        **({"mlflow.source.git.commit": commit} if commit else {}),
    }


# What MLflow accepts. A value that it refused would cost the run all others.

KEY_LENGTH, TAG_LENGTH = 250, 5000
METRICS, OTHERS = 800, 100
"""The numbers of metrics, and of params and tags each, in one call; MLflow allows 1000 in all."""


@cache
def key_of(name: str) -> str:
    """Return the name of a metric or parameter with the characters and parts that MLflow accepts."""
    parts = re.sub(r"[^\w/.\- :]", "_", name)[:KEY_LENGTH].split("/")
    return "/".join(part for part in parts if part.strip(".")) or "_"


def text_of(value: object) -> str:
    """Return the text of a value as every database stores it."""
    return str(value).encode(errors="replace").decode().replace("\0", "?")


def metrics_of(
    values: Mapping[str, float | None], timestamp: int, step: int = 0, model_id: str | None = None
) -> "list[Metric]":
    """Return the defined ones of ``values``; of two names that become equal, the first."""
    from mlflow.entities import Metric

    found: dict[str, Metric] = {}
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            metric = Metric(key_of(name), value, timestamp, step, model_id=model_id)
            found.setdefault(metric.key, metric)
    return [*found.values()]


def params_of(values: Mapping[str, Value]) -> "list[Param]":
    from mlflow.entities import Param

    return [Param(key, text) for key, text in {key_of(name): text_of(values[name]) for name in values}.items()]


def tags_of(values: Mapping[str, str]) -> "list[RunTag]":
    from mlflow.entities import RunTag

    return [RunTag(name, text_of(value)[:TAG_LENGTH]) for name, value in values.items()]


def log_values(
    client: "MlflowClient",
    run_id: str,
    *,
    metrics: "Sequence[Metric]" = (),
    params: "Sequence[Param]" = (),
    tags: "Sequence[RunTag]" = (),
) -> None:
    """Write everything in one call, or in several if there is too much for one."""
    while metrics or params or tags:
        part = {"metrics": metrics[:METRICS], "params": params[:OTHERS], "tags": tags[:OTHERS]}
        client.log_batch(run_id, **part, synchronous=True)  # whatever MLFLOW_ENABLE_ASYNC_LOGGING says
        metrics, params, tags = metrics[METRICS:], params[OTHERS:], tags[OTHERS:]


# The metrics and tags of a trial.

EPOCH_METRIC = "train/seconds"
"""A metric of every epoch; MLflow groups charts by the part before the slash."""


def epoch_metrics(trial: FrozenTrial, known: int) -> "list[Metric]":
    """Return the metrics of each epoch after the first ``known`` ones, numbered across folds, and the value so far."""
    rows = []
    for step, record in list(enumerate(epochs_of(trial), start=1))[known:]:
        values: dict[str, float | None] = {EPOCH_METRIC: record["end"] - record["start"]}
        values |= {"train/loss": record["loss"]} if "loss" in record else {}
        values |= {f"train/{name}": value for name, value in record.get("reported", {}).items()}
        values |= {f"train/{unit}": count for unit, count in record.get("used", {}).items()}
        if "distinct_proxies" in record:
            values["train/distinct_proxies"] = record["distinct_proxies"]
        values |= {f"validation/{name}": value for name, value in record["metrics"].items()}
        values["objective/value"] = trial.intermediate_values.get(step)
        rows += metrics_of(values, int(record["end"] * 1000), step)
    return rows


def outcome_tags(trial: FrozenTrial) -> "list[RunTag]":
    outcome = trial.user_attrs.get("outcome", "")
    tags = {"holdout.state": trial.state.name, "holdout.outcome": outcome, NOTE: outcome}
    if failure := trial.user_attrs.get("failure"):
        tags["holdout.failure"] = failure["cause"]
    return tags_of(tags)


# Updating a summary run: only changes are written.


def bring_up_to_date(client: "MlflowClient", run_id: str, wanted: Content, now: int) -> None:
    """Write those parts of ``wanted`` that the run ``run_id`` lacks; ``now`` is in milliseconds since 1970."""
    data = client.get_run(run_id).data
    tags = {**wanted.tags, **({NOTE: wanted.description} if wanted.description else {})}
    contents = {path.name: path.read_bytes() for path in wanted.files}
    contents |= {name: text.encode() for name, text in wanted.texts.items()}
    parts = (f"{name}:{len(content)}:".encode() + content for name, content in sorted(contents.items()))
    digest = hashlib.sha256(b"".join(parts)).hexdigest()
    if contents and data.tags.get(FILES) != digest:
        for name, text in wanted.texts.items():
            client.log_text(run_id, text, name)
        for path in wanted.files:
            client.log_artifact(run_id, str(path))
        tags[FILES] = digest
    log_values(
        client,
        run_id,
        metrics=[entry for entry in metrics_of(wanted.metrics, now) if data.metrics.get(entry.key) != entry.value],
        params=[entry for entry in params_of(wanted.params) if entry.key not in data.params],
        tags=[entry for entry in tags_of(tags) if data.tags.get(entry.key) != entry.value],
    )


# The view of an experiment: the columns, filter and sorting of the table of its runs.
#
# MLflow's table shows no metrics unless a view selects them. Like those saved by the button *Views*, it is a tag of
# the experiment, in the format of MLflow 3.17; other versions may ignore them.

RUN_NAME, RUN_DATE = "attributes.`Run Name`", "runDateAndNestInfo"


def keep_view(client: "MlflowClient", experiment: "Experiment", objective: str, params: Sequence[str]) -> None:
    """Create or update the view of the results of the ``experiment``; the columns of other searches are kept."""
    key = f"mlflow.sharedViewState.{RESULTS}"
    view = _view(objective, params, before := experiment.tags.get(key))
    if view != before:
        client.set_experiment_tag(experiment.experiment_id, key, view)


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{key_of(name)}`"


def _view(objective: str, params: Sequence[str], before: str | None) -> str:
    """Return the view in MLflow's format, with the columns and the creation time of the view ``before``.

    It shows the runs of the losses, the highest confirmed value first: that of the search is the best of many trials.
    Tags stand for the metrics, which MLflow shows with all their digits.
    """
    there, created = [], int(time.time() * 1000)
    values = dict.fromkeys((f"confirmed {objective}", f"test {objective}"), 185)
    shown = {"recommended": 110, **values, "minus default": 135, "minus no training": 145}
    first = {_column("tags", name): width for name, width in shown.items()}
    with suppress(*DAMAGED):  # anybody may change a tag; a damaged view is made anew
        stored = json.loads(before) if before else {}
        there = [str(column) for column in json.loads(stored["state"])["selectedColumns"]]
        created = int(stored["createdAt"])
    columns = list(dict.fromkeys((*first, *there, *(_column("params", name) for name in params))))
    others = [name for name in columns if name not in first]
    state = {
        "searchFilter": f"tags.`{KIND}` = 'loss'",
        "orderByKey": _column("metrics", f"confirmed/{objective}"),
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "columnOrder": ["0", RUN_NAME, *first, RUN_DATE, "duration", *others],  # 0 is the check box
        "columnWidths": {RUN_NAME: 150, RUN_DATE: 105, **first},  # in pixels
    }
    return json.dumps({"name": "Results", "createdAt": created, "updatedAt": created, "state": json.dumps(state)})
