"""A search file made ready to travel: what is wrong in it is said here, what only the cluster knows is said there."""

from collections.abc import Iterator
from typing import Any

import yaml

from search.checks import spaces_of
from search.config import SearchConfig, parse_config
from trainables.data import DATASETS
from trainables.mistakes import raise_if_any
from trainables.models.config import IMAGENET

ANYWHERE = "glyphs"
"""A data set that is on every machine, in whose place the cluster's own is put."""


def submission(content: dict[str, Any]) -> tuple[str, str]:
    """The search's name, and its file as text.

    The images lie on the cluster and not here, so their section is checked there, like the cluster's own resources.

    Raises:
        Mistakes: all that is wrong with the rest.
    """
    config = parse_config({**content, "dataset": _dataset_anywhere(content.get("dataset"))})
    raise_if_any(list(_paths_of_this_machine(content, config)))
    spaces_of(config)
    return config.name, yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _dataset_anywhere(section: Any) -> Any:
    if not isinstance(section, dict) or section.get("name") not in DATASETS:
        return section  # wrong anywhere
    return {"name": ANYWHERE, **{key: section[key] for key in ("store_size", "cache") if key in section}}


def _paths_of_this_machine(content: dict[str, Any], config: SearchConfig) -> Iterator[str]:
    """Relative paths, which would mean something else on the cluster."""
    model = content.get("model") or {}
    places = {"dataset.root": content["dataset"].get("root"), "dataset.cache": content["dataset"].get("cache")}
    if model.get("weights") != IMAGENET:
        places["model.weights"] = model.get("weights")
    for key, path in places.items():
        if path is not None and not str(path).startswith(("/", "~")):
            yield f"{key} must be a whole path on the cluster, beginning with '/' or '~'; it is {path!r}."
    for key, address in {"search.storage": config.search.storage, "tracking.uri": config.tracking.uri}.items():
        if address and address.startswith("sqlite") and not address.partition(":///")[2].startswith("/"):
            yield f"{key} must hold a whole path on the cluster, as in sqlite:////shared/study.db; it is {address!r}."
