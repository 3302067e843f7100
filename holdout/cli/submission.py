"""Submission to a cluster: a search or campaign file, and the code that carries it out."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from search.addresses import sqlite_file
from search.config.names import shipped_packages
from search.config.recipes import is_campaign, recipes
from search.config.search_config import SearchConfig, validate_config
from search.driver.part_checks import check_parts
from search.packages import PACKAGES, TOP
from search.records.campaign import parse_campaign
from search.records.plan import check_spaces
from search.trust import TRACKING, own_code
from trainables.common.errors import InvalidInput
from trainables.common.part_tables import is_own
from trainables.data import DATASETS
from trainables.models.config import IMAGENET

SUBMITTED = "submitted.yaml"
"""The name that the file has there."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The search or campaign file ``text`` for ``holdout run`` on a cluster, and the name in it.

    ``shipped`` are the user's packages that travel with it, and their folders on this machine.
    """

    name: str
    text: str
    shipped: Mapping[str, Path]


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
        name, configs = campaign.name, campaign.searches
    else:
        configs = (_parse_anywhere(content),)
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
    found.add(_not_shipped(content, config))
    check_spaces(found, config)
    check_parts(found, config)
    found.raise_if_any()
    return config


def _dataset_anywhere(section: Any) -> Any:
    """Return the section of a data set that needs no files; ``section`` itself if it is invalid on any machine."""
    name = section.get("name") if isinstance(section, dict) else None
    with suppress(InvalidInput):  # a user-defined one that cannot be imported here
        if isinstance(name, str) and (name in DATASETS or (is_own(name) and DATASETS[name])):
            return {"name": ANYWHERE, **{key: section[key] for key in ("store_size", "cache") if key in section}}
    return section


def _paths_of_this_machine(content: dict[str, Any], config: SearchConfig) -> Iterator[str]:
    """Yield a mistake for each relative path, which would have another meaning on the cluster."""
    keys = ["dataset.root", "dataset.file", "dataset.cache", TRACKING]
    if config.model.weights != IMAGENET:
        keys.append("model.weights")
    for key in keys:
        section, _, name = key.partition(".")
        written = content.get(section)
        path = written.get(name) if isinstance(written, dict) else None
        if key == TRACKING and isinstance(path, str):
            path = str(sqlite_file(path) or "/")
        if isinstance(path, str) and not path.startswith(("/", "~")):
            yield f"{key} must be an absolute path on the cluster, starting with '/' or '~'; it is {path!r}."


INSTALLED = frozenset({"site-packages", "dist-packages"})


def _not_shipped(content: dict[str, Any], config: SearchConfig) -> Iterator[str]:
    """Yield a mistake for each user-defined module of this machine that neither is installed nor travels."""
    packages = dict.fromkeys(path.partition(":")[0].partition(".")[0] for path in own_code(content))
    for package in packages:
        spec = find_spec(package) if package not in (*config.ship, *PACKAGES) else None
        file = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
        if file and not INSTALLED.intersection(Path(file).parts):
            yield (
                f"ship: the search names code of {package}, which is in {Path(file).parent} on this machine and not on "
                f"the cluster; add `ship: [{package}]` to the file."
            )


# The code that is sent to a cluster: our packages, the user's shipped ones, and the submitted file.

MOST_SHIPPED = 100_000_000
"""Most bytes of a shipped package; Ray keeps what is sent in the memory of the cluster's head."""
LEFT_HERE = shutil.ignore_patterns("__pycache__", ".*")


@contextmanager
def working_directory(text: str, shipped: Mapping[str, Path]) -> Iterator[Path]:
    """Yield a temporary folder with our packages, those ``shipped`` by name, and ``text`` as :data:`SUBMITTED`.

    Raises:
        InvalidInput: a shipped package has more than code: a link out of it, a pipe, a socket, or too many bytes.
    """
    for path in shipped.values():
        _refuse_more_than_code(path)
    with tempfile.TemporaryDirectory(prefix="holdout-code-") as folder:
        directory = Path(folder)
        for package in PACKAGES:
            shutil.copytree(TOP / package, directory / package, ignore=LEFT_HERE)
        for name, path in shipped.items():
            if path.is_dir():
                shutil.copytree(path, directory / name, ignore=LEFT_HERE)
            else:
                shutil.copy2(path, directory / path.name)
        (directory / SUBMITTED).write_text(text, "utf-8")
        yield directory


def _refuse_more_than_code(package: Path) -> None:
    """Raise if a shipped package holds files that must not or cannot travel; their copies would follow links."""
    size, root = 0, package.resolve()
    walked = os.walk(package) if package.is_dir() else iter([(str(package.parent), list[str](), [package.name])])
    for folder, folders, names in walked:
        left = LEFT_HERE(folder, [*folders, *names])
        folders[:] = [name for name in folders if name not in left]
        for path in (Path(folder, name) for name in (*folders, *names) if name not in left):
            if path.is_symlink() and (path.is_dir() or not Path(os.path.realpath(path)).is_relative_to(root)):
                raise InvalidInput(
                    f"ship: {path} is a link to {os.readlink(path)}, and a shipped package may only hold links to its "
                    "own files; replace it with the files that the search needs."
                )
            if not path.is_dir() and not path.is_file():
                raise InvalidInput(f"ship: {path} is not a regular file, so it cannot be sent; remove it.")
            size += path.stat().st_size
    if size > MOST_SHIPPED:
        raise InvalidInput(
            f"ship: {package} has {size / 1e6:,.0f} MB, and a shipped package may have {MOST_SHIPPED / 1e6:,.0f} MB; "
            "keep data and weights on the cluster."
        )
