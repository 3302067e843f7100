"""The chosen models of a search as versions of one registered model, whose alias names the best."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from search.tracking.described import DescribedModel, Registered, Registration
from search.tracking.tags import KIND, LOGGED_MODEL, SEARCH, VERSIONS
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

CHAMPION, CANDIDATE = "champion", "candidate"


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
