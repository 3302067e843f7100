"""Trust in stored searches, campaigns and indexes: what they name may be imported or contacted.

Somebody else's search file may name any host, variable and module, and somebody else's index any model. None of them
is imported or contacted unless this user made the folder on this machine, or allows it.
"""

import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from search.addresses import sqlite_file
from trainables.common.errors import InvalidInput, listed
from trainables.common.files import DAMAGED, absolute, write_json
from trainables.common.part_tables import is_import_path
from trainables.common.storage import AnyPath

logger = logging.getLogger(__name__)

TRACKING, CHECKPOINTS, VAULT = ADDRESSES = ("tracking.uri", "checkpoints.storage_path", "final.vault")
"""The keys of a search file that hold addresses, or a command that contacts one."""

INDEX_MODEL, CAMPAIGN_RECIPE = "model", "recipe"
"""The key of an index's description that holds the address of its model, and a campaign file's of its recipe's path."""


def state_folder() -> Path:
    """Return the user's folder for state shared by all runs folders; raise :class:`RuntimeError` without a home."""
    return Path(absolute(os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state"))) / "holdout"


# What a search file names.


def addresses_in(folder: AnyPath, content: Mapping[str, Any], keys: Collection[str] = ADDRESSES) -> set[str]:
    """Return the addresses at ``keys`` of a file in ``folder``, as ``key: address``, except local ones.

    Local are folders of checkpoints, and SQLite files in the runs folder.

    Raises:
        InvalidInput: an address is not text.
    """
    found = set()
    for key in keys:
        section, _, name = key.rpartition(".")
        within = content.get(section) if section else content
        address = within.get(name) if isinstance(within, Mapping) else None
        if address is not None and not isinstance(address, str):
            raise InvalidInput(f"{key} of {folder.name} is {address!r}, not text; restore its file from a copy.")
        if address is not None and not _is_local(folder, key, address):
            found.add(f"{key}: {address}")
    return found


def _is_local(folder: AnyPath, key: str, address: str) -> bool:
    if key in (CHECKPOINTS, VAULT):
        return key == CHECKPOINTS and "://" not in address
    file = None if "?" in address or "$" in address else sqlite_file(address)
    return file is not None and file.resolve().is_relative_to(Path(str(folder)).parent.resolve())


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


def _record_of(folder: AnyPath) -> Path:
    return state_folder() / "searches" / f"{hashlib.sha256(os.fsencode(str(folder.resolve()))).hexdigest()}.json"


def remember(folder: AnyPath, named: Iterable[str]) -> None:
    """Record that this user makes ``folder``, with the addresses and code ``named`` in it; a failure is a warning."""
    try:
        write_json(_record_of(folder), {"folder": str(folder.resolve()), "named": sorted(named)})
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


def started(folder: AnyPath) -> frozenset[str] | None:
    """Return what ``folder`` named when this user made it here; None if it is somebody else's, or a copy."""
    try:
        return frozenset(json.loads(_record_of(folder).read_bytes())["named"])
    except (OSError, RuntimeError, *DAMAGED):
        return None


ALLOWED: set["AnyPath | None"] = set()
"""Resolved folders of which this process may import and contact all that their files name; None stands for all."""


def is_trusted(folder: AnyPath, named: Collection[str]) -> bool:
    """Return True if the addresses and code ``named`` in ``folder`` may be contacted and imported."""
    if not named or not ALLOWED.isdisjoint((None, folder.resolve())):
        return True
    return (started(folder) or frozenset()).issuperset(named)


def check_trusted(folder: AnyPath, named: Collection[str]) -> None:
    """Raise :class:`InvalidInput` unless the addresses and code ``named`` in ``folder`` may be used."""
    if not is_trusted(folder, named):
        raise InvalidInput(
            f"{folder.name} names {listed(sorted(named), shown=5)}, which is neither imported nor contacted: you did "
            f"not make {folder.name} here, or it was changed since. If you trust its author, add --trust-code (in "
            "Python, trust_code=True)."
        )


def check_addresses(folder: AnyPath, content: Mapping[str, Any], keys: Collection[str] = ADDRESSES) -> None:
    """Check that the addresses at ``keys`` of a stored file may be contacted, as :func:`check_trusted` does."""
    check_trusted(folder, addresses_in(folder, content, keys))
