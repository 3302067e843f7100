"""A search or campaign file made ready to travel: what is wrong in it is said here, what the cluster knows there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from search.campaigns.campaign import parse_campaign
from search.config.recipes import is_campaign, recipes
from search.config.search_config import SearchConfig, parse_config
from search.plan.checks import spaces_of
from trainables.data import DATASETS
from trainables.mistakes import Mistakes, raise_if_any
from trainables.models.config import IMAGENET

ANYWHERE = "glyphs"
"""A data set that is on every machine, in whose place the cluster's own is put."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What a cluster is asked: that ``holdout`` with ``command`` carries out the file ``text``, whose name this is."""

    name: str
    command: str
    text: str


def submission(content: dict[str, Any]) -> Submission:
    """The search or campaign of the file ``content``.

    The images lie on the cluster and not here, so their section is checked there, like the cluster's own resources.

    Raises:
        Mistakes: all that is wrong with the rest; in a campaign, with that of each of its searches.
    """
    if is_campaign(content):
        if (recipe := content.get("recipe")) not in (None, *recipes()):
            raise Mistakes(
                f"recipe is {recipe!r}, and only the recipes that come with Holdout are on the cluster too "
                f"({', '.join(recipes())}); name one of them, or write the file's sections into base."
            )
        name, command = parse_campaign(content, _parse_anywhere).name, "campaign"
    else:
        name, command = _parse_anywhere(content).name, "run"
    return Submission(name=name, command=command, text=yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _parse_anywhere(content: dict[str, Any]) -> SearchConfig:
    """A search, as far as it can be read without its images."""
    dataset = {"dataset": _dataset_anywhere(content["dataset"])} if "dataset" in content else {}
    config = parse_config({**content, **dataset})
    raise_if_any(list(_paths_of_this_machine(content, config)))
    spaces_of(config)
    return config


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
