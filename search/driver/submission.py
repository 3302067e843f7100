"""A search or campaign file prepared for submission to a cluster."""

from collections.abc import Iterator
from typing import Any

import yaml

from search.config.campaign import parse_campaign
from search.config.names import shipped_packages
from search.config.recipes import is_campaign, recipes
from search.config.search_config import SearchConfig, validate_config
from search.driver.ray_jobs import Submission
from search.plan.checks.parts import check_parts, check_spaces
from search.secrets import sqlite_file
from trainables.data import DATASETS
from trainables.errors import InvalidInput
from trainables.models.config import IMAGENET
from trainables.parts import is_own

ANYWHERE = "glyphs"
"""A data set that needs no files; it replaces the cluster's data set while the file is checked on this machine."""


def submission(content: dict[str, Any]) -> Submission:
    """Check the search or campaign file ``content`` and return its submission.

    The data set and the resources are checked on the cluster, which has the images.

    Raises:
        InvalidInput: every mistake in the other sections; for a campaign, those of each of its searches.
    """
    if is_campaign(content):
        if (recipe := content.get("recipe")) not in (None, *recipes()):
            raise InvalidInput(
                f"recipe is {recipe!r}, but the cluster has only the recipes that come with Holdout "
                f"({', '.join(recipes())}); use one of them, or copy the sections of the recipe into base."
            )
        campaign = parse_campaign(content, _parse_anywhere)
        name = campaign.name
        configs = [member.config for member in campaign.members]
    else:
        configs = [_parse_anywhere(content)]
        name = configs[0].name
    return Submission(
        name=name,
        text=yaml.safe_dump(content, sort_keys=False, allow_unicode=True),
        shipped=shipped_packages(list(dict.fromkeys(package for config in configs for package in config.ship))),
    )


def _parse_anywhere(content: dict[str, Any]) -> SearchConfig:
    """Parse a search file without its data set, and raise all mistakes that can be found without the images."""
    dataset = {"dataset": _dataset_anywhere(content["dataset"])} if "dataset" in content else {}
    found = validate_config({**content, **dataset})
    config = found.built
    assert config is not None, "a search file of which nothing can be built"
    found.add(_paths_of_this_machine(content, config))
    check_spaces(found, config)
    check_parts(found, config)
    found.raise_if_any()
    return config


def _dataset_anywhere(section: Any) -> Any:
    """Return the section of a data set that needs no files; ``section`` itself if it is invalid on any machine."""
    if not isinstance(section, dict) or not _is_known(section.get("name")):
        return section
    return {"name": ANYWHERE, **{key: section[key] for key in ("store_size", "cache") if key in section}}


def _is_known(dataset: Any) -> bool:
    """Return True if ``dataset`` is a built-in data set or a user-defined one that can be imported here."""
    try:
        return isinstance(dataset, str) and (dataset in DATASETS or (is_own(dataset) and bool(DATASETS[dataset])))
    except InvalidInput:
        return False


def _paths_of_this_machine(content: dict[str, Any], config: SearchConfig) -> Iterator[str]:
    """Yield a mistake for each relative path, which would have another meaning on the cluster."""
    keys = ["dataset.root", "dataset.file", "dataset.cache"]
    if config.model.weights != IMAGENET:
        keys.append("model.weights")
    for key in keys:
        section, _, name = key.partition(".")
        written = content.get(section)
        path = written.get(name) if isinstance(written, dict) else None
        if isinstance(path, str) and not path.startswith(("/", "~")):
            yield f"{key} must be an absolute path on the cluster, starting with '/' or '~'; it is {path!r}."
    for key, address in {"search.storage": config.search.storage, "tracking.uri": config.tracking.uri}.items():
        if address and (file := sqlite_file(address)) and not file.is_absolute():
            yield f"{key} must hold an absolute path on the cluster, such as sqlite:////shared/x.db; it is {address!r}."
