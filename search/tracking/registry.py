"""MLflow's registry of models: a search's chosen ones as versions of one registered model, and a model from there."""

import atexit
import json
import os
import re
import shutil
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from search.config.secrets import without_password
from search.tracking.client import SQLITE, open_client
from search.tracking.described import DescribedModel, Registered, Registration
from search.tracking.model_artifact import FOLDER
from search.tracking.tags import KIND, LOGGED_MODEL, SEARCH, VERSIONS
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

CHAMPION, CANDIDATE = "champion", "candidate"
TRACKING_URI = "MLFLOW_TRACKING_URI"


def keep_versions(
    client: "MlflowClient", search: str, wanted: Registration, models: Mapping[str, tuple[str, DescribedModel]]
) -> Registered:
    """Have the ``models`` of ``search`` registered, and one of them with the alias.

    Args:
        client: of the server.
        search: its name.
        wanted: the registered model.
        models: by loss the id of the logged model, and what it is.

    Raises:
        Mistakes: another one's model has the name.
    """
    registered = _registered(client, search, wanted)
    there = {
        version.tags.get(LOGGED_MODEL): version for version in client.search_model_versions(f"name = '{wanted.name}'")
    }
    versions = {}
    for loss, (model_id, described) in models.items():
        version = there.get(model_id) or _made(client, wanted.name, model_id, described)
        _bring_up_to_date(client, version, described)
        _link(client, model_id, version)
        versions[loss] = str(version.version)
    alias = _keep_alias(client, registered, wanted, versions[wanted.best])
    return Registered(name=wanted.name, versions=versions, best=wanted.best, alias=alias)


def _registered(client: "MlflowClient", search: str, wanted: Registration) -> "RegisteredModel":
    found = client.search_registered_models(f"name = '{wanted.name}'")
    if not found:
        tags = {KIND: "search", SEARCH: search}
        return client.create_registered_model(wanted.name, tags=tags, description=wanted.description)
    registered = found[0]
    if registered.tags.get(SEARCH) != search:
        raise Mistakes(
            f"MLflow has a registered model {wanted.name} already, which is not of the search {search}; register this "
            f"one's under another name: `holdout register {search} --as NAME`."
        )
    return registered


def _made(client: "MlflowClient", name: str, model_id: str, described: DescribedModel) -> "ModelVersion":
    model = client.get_logged_model(model_id)
    return client.create_model_version(
        name,
        model.artifact_location,  # for models:/m-… MLflow 3.17 asks the server that this process has set, and not ours
        model.source_run_id,
        tags={LOGGED_MODEL: model_id, **described.tags},
        description=described.description,
        model_id=model_id,
    )


def _bring_up_to_date(client: "MlflowClient", version: "ModelVersion", wanted: DescribedModel) -> None:
    if version.description != wanted.description:
        client.update_model_version(version.name, version.version, wanted.description)
    for key, text in wanted.tags.items():
        if version.tags.get(key) != text:
            client.set_model_version_tag(version.name, version.version, key, text)


def _link(client: "MlflowClient", model_id: str, version: "ModelVersion") -> None:
    """Let the page of the logged model name its version, as MLflow's server does by itself."""
    linked = json.loads(client.get_logged_model(model_id).tags.get(VERSIONS, "[]"))
    entry = {"name": version.name, "version": int(version.version)}
    if (entry["name"], entry["version"]) not in [(other["name"], int(other["version"])) for other in linked]:
        client.set_logged_model_tags(model_id, {VERSIONS: json.dumps([*linked, entry])})


def _keep_alias(client: "MlflowClient", registered: "RegisteredModel", wanted: Registration, version: str) -> str:
    """One of the two aliases is there at a time; those that others gave stay."""
    alias, other = (CHAMPION, CANDIDATE) if wanted.distinguishable else (CANDIDATE, CHAMPION)
    if str(registered.aliases.get(alias)) != version:
        client.set_registered_model_alias(wanted.name, alias, version)
    if other in registered.aliases:
        client.delete_registered_model_alias(wanted.name, other)
    return alias


def downloaded_model(address: str) -> Path:
    """The folder of the model at ``address``, copied to this machine for as long as this process lives.

    Args:
        address: ``models:/NAME@ALIAS``, ``models:/NAME/VERSION`` or ``models:/m-…``, on the server that
            ``MLFLOW_TRACKING_URI`` names.

    Raises:
        Mistakes: no server is named or answers, or there is no such model, or it is none of Holdout's.
    """
    uri = _tracking_uri(address)
    client = open_client(uri)
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    place = tempfile.mkdtemp(prefix="holdout-model-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    shown = without_password(uri)
    try:
        location = _location(client, address)
    except MlflowException as error:
        if error.get_http_status_code() in (400, 404):  # an alias that is not there is 400
            raise Mistakes(f"There is no model {address} at {shown}; give what is there.") from None
        raise Mistakes(f"MLflow at {shown} does not give the model {address} ({_reason(error)}).") from error
    try:
        return Path(download_artifacts(f"{location}/data/{FOLDER}", dst_path=place, tracking_uri=uri))
    except (MlflowException, OSError) as error:
        raise Mistakes(
            f"The model {address} at {shown} has no folder data/{FOLDER}, as those that Holdout keeps there, or it "
            f"cannot be read ({_reason(error)})."
        ) from error


def _tracking_uri(address: str) -> str:
    uri = os.environ.get(TRACKING_URI)
    if not uri:
        raise Mistakes(
            f"{address} is a model in MLflow, and {TRACKING_URI} does not say where that is; set it, as in "
            f"{TRACKING_URI}=http://127.0.0.1:5000 or {TRACKING_URI}=sqlite:////home/me/runs/mlflow.db."
        )
    if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).is_file():
        raise Mistakes(f"{TRACKING_URI} is {uri}, and there is no such file; mend the path.")
    return uri


def _location(client: "MlflowClient", address: str) -> str:
    """Where the files lie of the logged model, or of the registered model's version, that ``address`` means."""
    found = re.fullmatch(r"models:/(?:(?P<id>m-\w+)|(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+)))", address)
    if found is None:
        raise Mistakes(
            f"A model in MLflow is models:/NAME@ALIAS, models:/NAME/VERSION or models:/m-…; not {address!r}."
        )
    location: str
    if found["id"]:
        location = client.get_logged_model(found["id"]).artifact_location
        return location
    version = found["version"] or client.get_model_version_by_alias(found["name"], found["alias"]).version
    location = client.get_model_version_download_uri(found["name"], version)
    return location


def _reason(error: Exception) -> str:
    return textwrap.shorten(without_password(str(error)), 160)
