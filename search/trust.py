"""Trust in stored searches and indexes: what may be contacted and imported to read one.

Somebody else's search file may name any host, variable, file and module, and somebody else's index any model. So they
are read without contacting or importing any of them, unless this user made them here, or allowed it.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search.secrets import sqlite_file
from trainables.errors import InvalidInput, listed
from trainables.files import DAMAGED, write_json
from trainables.parts import is_import_path
from trainables.storage import AnyPath

logger = logging.getLogger(__name__)

TRACKING, CHECKPOINTS = "tracking.uri", "checkpoints.storage_path"
ADDRESSES = (TRACKING, CHECKPOINTS)
"""The keys of a search file that hold addresses."""

INDEX_MODEL, CAMPAIGN_RECIPE = "model", "recipe"
"""The key of an index's description that holds the address of its model, and a campaign file's of its recipe's path."""


# The user's own folders.


def state_folder() -> Path:
    """Return the user's folder for state shared by all runs folders, ``~/.local/state/holdout``.

    ``$XDG_STATE_HOME`` replaces ``~/.local/state``.

    Raises:
        RuntimeError: the user has no home folder.
    """
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "holdout"


def config_file() -> Path:
    """Return the user's configuration file, ``~/.config/holdout/config.yaml``; ``$XDG_CONFIG_HOME`` moves it."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "holdout" / "config.yaml"


# What a search file names.

_PLAIN = re.compile(
    r"[a-z][a-z0-9+.-]*://"
    r"(?:[^\s:/@?#\\\[\]]*(?::[^\s:/@?#\\\[\]]*)?@)?"  # user and password
    r"(?P<host>[\w.-]+|\[[\da-fA-F:.]+\])?(?::(?:\d+|\$\{\w+\}))?"
    r"(?P<path>/[^\s@?#\\]*)?(?:\?(?P<query>[^\s@#\\]*))?",
    re.ASCII,
)
"""An address of which all libraries read the same host."""

_HARMLESS = re.compile(r"(sslmode|sslrootcert|charset|connect_timeout|application_name)=[^&]*", re.ASCII)
"""Parameters in a query that name no other host or file with settings."""


def place_of(address: str) -> str | None:
    """Return what an address contacts: its host, the path of a SQLite file, or without a host the whole address.

    None if libraries might read another host than the one that is seen.
    """
    if address.startswith("sqlite"):
        return str(sqlite_file(address) or address)
    found = _PLAIN.fullmatch(address)
    if found is None or not all(_HARMLESS.fullmatch(part) for part in (found["query"] or "").split("&") if part):
        return None
    return (found["host"] or address).strip("[]").lower()


def addresses_in(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the addresses in a search file, as written, by key."""
    found = {}
    for key in ADDRESSES:
        section, _, name = key.partition(".")
        within = content.get(section)
        if isinstance(within, Mapping) and (address := within.get(name)) is not None:
            found[key] = address
    return found


def own_code(content: Any) -> set[str]:
    """Return the import paths of user-defined parts in a search file or campaign file, and the packages it ships."""
    from trainables.models.backbones import LIBRARIES

    ships = content.get("ship") if isinstance(content, Mapping) else None
    paths = {text for text in _texts(content) if is_import_path(text) and text.partition(":")[0] not in LIBRARIES}
    return paths | (set(map(str, ships)) if isinstance(ships, list) else set())


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for pair in content.items():
            yield from _texts(pair)
    elif isinstance(content, Iterable):
        for entry in content:
            yield from _texts(entry)


# The searches that this user started, and the indexes that this user made: a file each in the state folder, which no
# runs folder can change.


@dataclass(frozen=True, kw_only=True)
class Started:
    """What the file of a search named when this user started it: addresses by key, as written, and import paths."""

    addresses: Mapping[str, str]
    code: frozenset[str]


def _record_of(folder: AnyPath) -> Path:
    return state_folder() / "searches" / f"{hashlib.sha256(os.fsencode(str(folder.resolve()))).hexdigest()}.json"


def remember(folder: Path, content: Mapping[str, Any]) -> None:
    """Record that this user starts the search in ``folder``, whose file is ``content``; a failure is a warning."""
    _write_record(
        folder,
        addresses_in(content),
        own_code(content),
        "commands that read it will ask for --trust if its records are on another host, and for --trust-code if it has "
        "user-defined parts",
    )


def remember_index(folder: AnyPath, model: str) -> None:
    """Record that this user makes the index in ``folder`` with the model at ``model``; a failure is a warning."""
    _write_record(folder, {INDEX_MODEL: model}, (), "`holdout query` will ask for --model")


def remember_campaign(folder: Path, recipe: str) -> None:
    """Record that this user starts the campaign in ``folder`` with the recipe; a failure is a warning."""
    _write_record(folder, {CAMPAIGN_RECIPE: recipe}, (), "commands that read it will not open its recipe")


def _write_record(folder: AnyPath, addresses: Mapping[str, str], code: Iterable[str], otherwise: str) -> None:
    record = {"folder": str(folder.resolve()), "addresses": dict(addresses), "code": sorted(code)}
    try:
        write_json(_record_of(folder), record)
    except (OSError, RuntimeError) as error:
        logger.warning(
            "The user's state folder cannot be written (%s), so %s is not recorded there; %s.",
            error,
            folder.name,
            otherwise,
        )


def forget(folder: Path) -> None:
    """Remove the record of a removed search."""
    try:
        _record_of(folder).unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        logger.warning("The record of %s in the user's state folder cannot be removed (%s).", folder.name, error)


def started(folder: AnyPath) -> Started | None:
    """Return what this user started in ``folder`` on this machine; None if it is somebody else's, or a copy."""
    try:
        content = json.loads(_record_of(folder).read_bytes())
        return Started(addresses=dict(content["addresses"]), code=frozenset(content["code"]))
    except (OSError, RuntimeError, *DAMAGED):
        return None


# What the user allowed.


@dataclass
class Allowed:
    """What the user allowed this process, besides the configuration file."""

    places: frozenset[str] = frozenset()
    code: bool = False


ALLOWED = Allowed()


def allow(places: Iterable[str]) -> None:
    """Allow this process to contact ``places``: hosts, or paths of SQLite files."""
    ALLOWED.places |= {_place(place) for place in places}


def _place(given: str) -> str:
    """Return the place that a user means, who may give an address or a host with its port."""
    if "://" in given:
        return place_of(given) or given
    return given if given.startswith("/") else re.sub(r"(?<=[^:]):\d+$", "", given.strip("[]")).lower()


def _allowed_places() -> frozenset[str]:
    return ALLOWED.places | _configured()


def _configured() -> frozenset[str]:
    """Return the places in the user's configuration file.

    Raises:
        InvalidInput: it has another form.
    """
    try:
        path = config_file()
        text = path.read_bytes()  # YAML finds its encoding
    except (FileNotFoundError, NotADirectoryError, RuntimeError):
        return frozenset()
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        content = text
    places = content.get("trust") if isinstance(content, dict) and content.keys() <= {"trust"} else None
    if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
        raise InvalidInput(f"{path} must hold one key, a list of hosts, such as `trust: [db.example.org]`; correct it.")
    return frozenset(map(_place, places))


# The checks.


def check_address(folder: Path, key: str, address: str) -> None:
    """Check that ``address``, which the file of the search in ``folder`` has at ``key``, may be contacted.

    That is so for SQLite files in its runs folder, local folders of checkpoints, an address with which this user
    started the search, and places that the user allowed.

    Raises:
        InvalidInput: it may not.
    """
    if _is_local(folder, key, address) or ((known := started(folder)) and known.addresses.get(key) == address):
        return
    place = place_of(address)
    if place is not None and place in _allowed_places():
        return
    if place is None:
        fix = "its host is ambiguous; if the search is yours, start it once with `holdout run FILE`"
    else:
        fix = f"if you trust it, add `--trust {place}`, or list it under `trust:` in {config_file()}"
    raise InvalidInput(
        f"{key} of {folder.name} is {address}, which is not contacted: you did not start this search here; {fix}."
    )


def check_model(folder: AnyPath, address: str) -> None:
    """Check that the model at ``address``, which the index in ``folder`` names, may be loaded.

    That is so if this user made the index, or allowed the host of the address.

    Raises:
        InvalidInput: it may not.
    """
    place = place_of(address)
    known = started(folder)
    if (known is None or known.addresses.get(INDEX_MODEL) != address) and not (place and place in _allowed_places()):
        raise InvalidInput(
            f"The index {folder} names the model {address}, which is not loaded: you did not make "
            "this index here; if you trust it, add --model with the address of the model."
        )


def check_recipe(folder: Path, recipe: str) -> None:
    """Check that the file at the path ``recipe``, which the campaign in ``folder`` names, may be opened.

    Raises:
        InvalidInput: this user did not start the campaign.
    """
    known = started(folder)
    if known is None or known.addresses.get(CAMPAIGN_RECIPE) != recipe:
        raise InvalidInput(
            f"recipe of {folder.name} is the file {recipe}, which is not opened: you did not start this campaign here; "
            "copy its sections into base in campaign.yaml, and remove recipe."
        )


def _is_local(folder: Path, key: str, address: str) -> bool:
    if key == CHECKPOINTS:
        return "://" not in address
    file = None if "?" in address or "$" in address else sqlite_file(address)
    return file is not None and any(
        file.resolve().is_relative_to(inside.resolve()) for inside in (folder, folder.parent)
    )


def check_addresses(folder: Path, content: Mapping[str, Any], keys: Collection[str] = ADDRESSES) -> None:
    """Check that the addresses of a stored search file may be contacted, as :func:`check_address` does."""
    for key, address in addresses_in(content).items():
        if key in keys:
            check_address(folder, key, str(address))


def trusts_code(folder: Path, paths: Collection[str]) -> bool:
    """Return True if the import paths may be imported: the user allowed it, or started the search with them."""
    return not paths or ALLOWED.code or ((known := started(folder)) is not None and known.code.issuperset(paths))


def check_code(folder: Path, paths: Collection[str]) -> None:
    """Check that the import paths, which the search or campaign in ``folder`` names, may be imported.

    Raises:
        InvalidInput: they may not.
    """
    if not trusts_code(folder, paths):
        raise InvalidInput(
            f"{folder.name} names code that would be imported and run ({listed(sorted(paths), shown=5)}), and you did "
            "not start it here; if you trust it, add --trust-code."
        )
