"""The chosen models as MLflow artifacts, logged models and registered versions.

Everything is idempotent: existing models and versions are updated and not written again.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from search.packages import IN_REPOSITORY, TOP, TRAINABLES
from search.tracking.summary_runs import (
    ID,
    LOGGED_MODEL,
    MODEL,
    NOTE,
    SEARCH,
    VERSIONS,
    Content,
    log_values,
    metrics_of,
    origin_tags,
    params_of,
    tags_of,
)
from trainables.common.errors import InvalidInput
from trainables.inference.model_files import DESCRIPTION
from trainables.models.backbones import backbone, on_features

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

# The artifact: a model folder with a signature, an example and the code that loads it, without pickles.

FOLDER = "model"
"""The name of the model folder in the artifact's ``data``."""
REQUIRED = ("numpy", "pillow", "safetensors", "torch", "torchvision")
SIDE = 64
"""The side of the example image in pixels."""


def log_artifact(client: "MlflowClient", model: "LoggedModel", folder: Path) -> None:
    """Upload the model in ``folder`` as the artifact of ``model``, in a form that MLflow's tools load and serve.

    The signature is fixed, so torch is not imported. The example image is generated, so that no image of a dataset is
    published.
    """
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.pyfunc import save_model
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import AnyType, Array

    network = str(json.loads((folder / DESCRIPTION).read_bytes())["model"]["backbone"])
    example: list[float] | bytes
    if on_features(network):
        features = backbone(network).features
        column, kind, example = "features", Array(DataType.double), [1.0] * features
    else:
        from PIL import Image

        content = io.BytesIO()
        Image.linear_gradient("L").resize((SIDE, SIDE)).save(content, "PNG")
        # Not `binary`: it decodes base64, but refuses pixels over HTTP.
        column, kind, example = "image", AnyType(), content.getvalue()
    items = Schema([ColSpec(kind, column)])
    embeddings = Schema([ColSpec(Array(DataType.float), "embedding")])
    required = (*REQUIRED, "timm") if network.startswith("timm:") else REQUIRED
    with TemporaryDirectory() as place:
        (Path(place) / FOLDER).symlink_to(folder.resolve())
        artifact = Path(place) / "artifact"
        save_model(
            artifact,
            mlflow_model=Model(
                artifact_path=model.artifact_location, model_id=model.model_id, run_id=model.source_run_id
            ),
            loader_module="served_model",
            data_path=str(Path(place) / FOLDER),
            code_paths=[str(zipped_code(Path(place))), str(Path(__file__).with_name("served_model.py"))],
            pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in required],  # without +cpu
            signature=ModelSignature(items, embeddings),
            input_example=pd.DataFrame({column: [example]}),
        )
        client.log_model_artifacts(model.model_id, str(artifact))


def zipped_code(folder: Path) -> Path:
    """Write the package ``trainables`` to one zip file in ``folder``, since a server needs a request for each file.

    The same code gives the same file.
    """
    path = folder / "trainables.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for module in sorted(TRAINABLES.rglob("*.py")):
            archive.writestr(ZipInfo(str(module.relative_to(TOP))), module.read_bytes(), ZIP_DEFLATED)
        if not IN_REPOSITORY:  # its parent package, empty: the installed one reads its stub, which is no file in a zip
            archive.writestr(ZipInfo("holdout/__init__.py"), b"")
    return path


def keep_model(client: "MlflowClient", run_id: str, name: str, wanted: Content, now: int) -> str:
    """Log or update ``wanted`` as a model ``name`` of the run ``run_id``; return its id. ``now`` is in ms since 1970.

    A run may have several: a model with other weights or another preprocessing is another model.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    run, (folder,) = client.get_run(run_id), wanted.files
    digest = hashlib.sha256((folder / DESCRIPTION).read_bytes()).hexdigest()  # covers the weights' digest
    tags = {entry.key: entry.value for entry in tags_of({**wanted.tags, NOTE: wanted.description})}
    of_digest = f"source_run_id = '{run_id}' AND tags.`{MODEL}` = '{digest}'"
    there = client.search_logged_models([run.info.experiment_id], of_digest)
    there.sort(key=lambda model: model.status != LoggedModelStatus.READY)  # a process may have died in an upload
    model = (
        there[0]
        if there
        else client.create_logged_model(
            run.info.experiment_id,
            name=name.replace(".", "-").replace("/", "-"),  # MLflow refuses dots and slashes in it
            source_run_id=run_id,
            tags={**origin_tags(), MODEL: digest, **tags},
            params={entry.key: entry.value for entry in params_of(wanted.params)},
            model_type="embedder",
        )
    )
    if model.status != LoggedModelStatus.READY:
        log_artifact(client, model, folder)
        linked = {output.model_id for output in run.outputs.model_outputs} if run.outputs else set()
        if model.model_id not in linked:
            client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    if changed := {key: text for key, text in tags.items() if model.tags.get(key) != text}:
        client.set_logged_model_tags(model.model_id, changed)
    newest = {metric.key: metric.value for metric in model.metrics or ()}
    metrics = metrics_of(wanted.metrics, now, model_id=model.model_id)
    log_values(client, run_id, metrics=[entry for entry in metrics if newest.get(entry.key) != entry.value])
    return str(model.model_id)


# Versions of a registered model, whose alias marks the best one.

CHAMPION = "champion"


def keep_versions(
    client: "MlflowClient",
    search: Mapping[str, str],
    name: str,
    description: str,
    best: str,
    models: Mapping[str, tuple[str, Content]],
) -> dict[str, str]:
    """Register the ``models`` of a search as versions of ``name``, and set the alias of the row ``best``.

    ``search`` has the tags that identify the search, ``models`` the id of the logged model and its content by loss.
    Return the version of each.

    Raises:
        InvalidInput: a registered model with this name belongs to something else.
    """
    found = client.search_registered_models(f"name = '{name}'")
    if found and found[0].tags.get(ID) != search[ID]:
        raise InvalidInput(
            f"MLflow already has a registered model {name}, which does not belong to the search {search[SEARCH]}; "
            f"register under another name: `holdout sync {search[SEARCH]} --register --as NAME`."
        )
    registered = found[0] if found else client.create_registered_model(name, tags=search, description=description)
    there = {version.tags.get(LOGGED_MODEL): version for version in client.search_model_versions(f"name = '{name}'")}
    versions = {}
    for loss, (model_id, content) in models.items():
        if (version := there.get(model_id)) is None:
            model = client.get_logged_model(model_id)
            version = client.create_model_version(
                name,
                model.artifact_location,  # for models:/m-… MLflow 3.17 would use the global tracking URI, not this one
                model.source_run_id,
                tags={LOGGED_MODEL: model_id, **content.tags},
                description=content.description,
                model_id=model_id,
            )
        if version.description != content.description:
            client.update_model_version(name, version.version, content.description)
        for key, text in content.tags.items():
            if version.tags.get(key) != text:
                client.set_model_version_tag(name, version.version, key, text)
        linked = json.loads(client.get_logged_model(model_id).tags.get(VERSIONS, "[]"))
        if (name, int(version.version)) not in [(other["name"], int(other["version"])) for other in linked]:
            linked.append({"name": name, "version": int(version.version)})
            client.set_logged_model_tags(model_id, {VERSIONS: json.dumps(linked)})
        versions[loss] = str(version.version)
    if str(registered.aliases.get(CHAMPION)) != versions[best]:
        client.set_registered_model_alias(name, CHAMPION, versions[best])
    return versions
