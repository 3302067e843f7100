"""The chosen models of a search as MLflow's logged models: what is there already is not written again."""

import hashlib
from typing import TYPE_CHECKING

from search.tracking.described import DescribedModel
from search.tracking.models.artifact import log_artifact
from search.tracking.summary_runs import TAG_LENGTH
from search.tracking.tags import MODEL, NOTE, origin_tags
from trainables.inference.model_folder import DESCRIPTION

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run

KIND_OF_MODEL = "embedder"


def keep_model(client: "MlflowClient", run_id: str, name: str, wanted: DescribedModel, now: int) -> str:
    """Have ``wanted`` as a model ``name`` of the run ``run_id``, and return its id; ``now`` in ms since 1970.

    A run may have several: a model with other weights, or another preprocessing, is another one.
    """
    from mlflow.entities import LoggedModelStatus

    run = client.get_run(run_id)
    digest = hashlib.sha256((wanted.folder / DESCRIPTION).read_bytes()).hexdigest()  # which has that of the weights
    model = _found(client, run, digest) or client.create_logged_model(
        run.info.experiment_id,
        name=_allowed(name),
        source_run_id=run_id,
        tags={**origin_tags(), MODEL: digest, **_tags(wanted)},
        params={key: str(value) for key, value in wanted.params.items()},
        model_type=KIND_OF_MODEL,
    )
    if model.status != LoggedModelStatus.READY:
        log_artifact(client, model, wanted.folder)
        _link(client, run, model)
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    _bring_up_to_date(client, run_id, model, wanted, now)
    found: str = model.model_id
    return found


def _found(client: "MlflowClient", run: "Run", digest: str) -> "LoggedModel | None":
    """The model that is there, whole or as far as a process that died came with it; of two, the whole one."""
    from mlflow.entities import LoggedModelStatus

    of_digest = f"source_run_id = '{run.info.run_id}' AND tags.`{MODEL}` = '{digest}'"
    models = client.search_logged_models([run.info.experiment_id], of_digest)
    return min(models, key=lambda model: model.status != LoggedModelStatus.READY, default=None)


def _allowed(name: str) -> str:
    """A logged model's name has no dot and no slash."""
    return name.replace(".", "-").replace("/", "-")


def _link(client: "MlflowClient", run: "Run", model: "LoggedModel") -> None:
    from mlflow.entities import LoggedModelOutput

    linked = {output.model_id for output in run.outputs.model_outputs} if run.outputs else set()
    if model.model_id not in linked:
        client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, step=0)])


def _bring_up_to_date(
    client: "MlflowClient", run_id: str, model: "LoggedModel", wanted: DescribedModel, now: int
) -> None:
    from mlflow.entities import Metric

    if tags := {key: text for key, text in _tags(wanted).items() if model.tags.get(key) != text}:
        client.set_logged_model_tags(model.model_id, tags)
    newest = {metric.key: metric.value for metric in model.metrics or ()}
    metrics = [
        Metric(key, value, now, 0, model_id=model.model_id)
        for key, value in wanted.metrics.items()
        if newest.get(key) != value
    ]
    if metrics:
        client.log_batch(run_id, metrics=metrics)


def _tags(wanted: DescribedModel) -> dict[str, str]:
    tags = {**wanted.tags, NOTE: wanted.description}
    return {key: text[:TAG_LENGTH] for key, text in tags.items()}
