"""The views of an experiment's runs: which columns its table has, which runs it shows and how they are sorted.

MLflow shows no metric in the table of runs unless a view says so. What its button *Views* saves is a tag of the
experiment, and so are these; the form is that of MLflow 3.17's pages, which other versions may pass over.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from search.tracking.described import DescribedSearch
from search.tracking.tags import KIND, STAGE

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

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
