"""Trust in stored searches, campaigns and indexes: what may be contacted and imported to read one.

Somebody else's search file may name any host, variable and module, and somebody else's index any model. So they are
read without contacting or importing any of them, unless this user made them here, or allowed it.
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
from trainables.files import DAMAGED, absolute, write_json
from trainables.parts import is_import_path
from trainables.storage import AnyPath

logger = logging.getLogger(__name__)

TRACKING, CHECKPOINTS = "tracking.uri", "checkpoints.storage_path"
ADDRESSES = (TRACKING, CHECKPOINTS)
"""The keys of a search file that hold addresses."""

INDEX_MODEL, CAMPAIGN_RECIPE = "model", "recipe"
"""The key of an index's description that holds the address of its model, and a campaign file's of its recipe's path."""


def state_folder() -> Path:
    """Return the user's folder for state shared by all runs folders; raise :class:`RuntimeError` without a home."""
    return Path(absolute(os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state"))) / "holdout"


# What a search file names.


def addresses_in(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the addresses in a search file, as written, by key."""
    found = {}
    for key in ADDRESSES:
        section, _, name = key.partition(".")
        within = content.get(section)
        if isinstance(within, Mapping) and (address := within.get(name)) is not None:
            found[key] = address
    return found


def commands_in(content: Mapping[str, Any]) -> set[str]:
    """Return the command of the vault in a search file, which runs when a search begins and when it is tested."""
    final = content.get("final")
    return {str(final["vault"])} if isinstance(final, Mapping) and final.get("vault") else set()


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


# What this user made: a file each in the state folder, which no runs folder can change.


@dataclass(frozen=True, kw_only=True)
class Started:
    """What the file of a search named when this user started it: addresses by key, as written, and import paths."""

    addresses: Mapping[str, str]
    code: frozenset[str]


def _record_of(folder: AnyPath) -> Path:
    return state_folder() / "searches" / f"{hashlib.sha256(os.fsencode(str(folder.resolve()))).hexdigest()}.json"


def remember(folder: AnyPath, addresses: Mapping[str, str], code: Iterable[str] = ()) -> None:
    """Record that this user makes ``folder``, which names ``addresses`` and ``code``; a failure is a warning."""
    record = {"folder": str(folder.resolve()), "addresses": dict(addresses), "code": sorted(code)}
    try:
        write_json(_record_of(folder), record)
    except (OSError, RuntimeError) as error:
        logger.warning(
            "The user's state folder cannot be written (%s), so %s counts as somebody else's: other commands will ask "
            "whether you trust what it names.",
            error,
            folder.name,
        )


def forget(folder: Path) -> None:
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


# What the user allowed this process.


@dataclass
class Allowed:
    """The hosts and files that may be contacted, and whether code may be imported."""

    places: frozenset[str] = frozenset()
    code: bool = False


ALLOWED = Allowed()


def allow(places: Iterable[str]) -> None:
    """Allow this process to contact ``places``: hosts, or paths of SQLite files."""
    ALLOWED.places |= frozenset(places)


_PLAIN = re.compile(
    r"[a-z\d+.-]+://(?:[^\s:/@?#\\]*(?::[^\s:/@?#\\]*)?@)?([\w.-]+)(?::\d+)?(?:/[^\s@?#\\]*)?", re.ASCII
)
"""An address of which all libraries read the same host."""


def place_of(address: str) -> str | None:
    """Return what an address contacts, its host or the path of a SQLite file; None if libraries might disagree."""
    if address.startswith("sqlite"):
        return str(sqlite_file(address) or address)
    return found[1] if (found := _PLAIN.fullmatch(address)) else None


def check_address(folder: AnyPath, key: str, address: str) -> None:
    """Check that ``address``, which the file in ``folder`` has at ``key``, may be contacted or opened.

    That is so for SQLite files in its runs folder, local folders of checkpoints, an address that the file had when this
    user made it, and places that the user allowed.

    Raises:
        InvalidInput: it may not.
    """
    if _is_local(folder, key, address) or ((known := started(folder)) and known.addresses.get(key) == address):
        return
    place = place_of(address)
    if place is None or place not in ALLOWED.places:
        trust = {CAMPAIGN_RECIPE: "", INDEX_MODEL: " or, if you trust it, add --model with this address"}
        allowed = f" or, if you trust it, add `--trust {place}`" if place else ""
        raise InvalidInput(
            f"{key} of {folder.name} is {address}, which is not contacted: you did not make {folder.name} here; "
            f"make it yourself{trust.get(key, allowed)}."
        )


def _is_local(folder: AnyPath, key: str, address: str) -> bool:
    if key == CHECKPOINTS:
        return "://" not in address
    file = None if "?" in address or "$" in address else sqlite_file(address)
    return file is not None and file.resolve().is_relative_to(Path(str(folder)).parent.resolve())


def check_addresses(folder: Path, content: Mapping[str, Any], keys: Collection[str] = ADDRESSES) -> None:
    """Check that the addresses of a stored search file may be contacted, as :func:`check_address` does."""
    for key, address in addresses_in(content).items():
        if key in keys:
            check_address(folder, key, str(address))


def trusts_code(folder: Path, paths: Collection[str]) -> bool:
    """Return True if the import paths may be imported: the user allowed it, or started the search with them."""
    return not paths or ALLOWED.code or ((known := started(folder)) is not None and known.code.issuperset(paths))


def check_code(folder: Path, paths: Collection[str]) -> None:
    """Raise unless the import paths, which the search or campaign in ``folder`` names, may be imported."""
    if not trusts_code(folder, paths):
        raise InvalidInput(
            f"{folder.name} names code that would be imported and run ({listed(sorted(paths), shown=5)}), and you did "
            "not start it here; if you trust it, add --trust-code."
        )
