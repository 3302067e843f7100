"""Places outside of the runs folder: decoded images, and checkpoints, which only their own search may remove."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search.config.yaml_file import read_yaml
from search.plan.runs import RunFolder, trials_in
from search.trust import CHECKPOINTS
from trainables.common.errors import InvalidInput
from trainables.common.files import DAMAGED, absolute, as_path, read_whole, reading, write_json
from trainables.common.storage import AnyPath, ask

MARKER = "holdout.json"
"""The file in a folder of checkpoints that says which search made it."""


def default_cache() -> str:
    """Return the folder for decoded images if the search file names none."""
    return absolute(os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "holdout"))


def checkpoints_elsewhere(folder: RunFolder) -> "AnyPath | None":
    """Return the location of a search's checkpoints if it is outside of its folder and its search file is readable.

    Raises:
        InvalidInput: its address is not one that can be used here.
    """
    try:
        config: Mapping[str, Any] = read_yaml(folder.config)
        address = config["checkpoints"]["storage_path"]
    except (InvalidInput, LookupError, TypeError):  # written by an older version
        return None
    if not isinstance(address, str):
        return None
    try:
        trials = as_path(trials_in(address, folder.name))
        inside = isinstance(trials, Path) and os.path.realpath(trials) == os.path.realpath(folder.path / "trials")
    except Exception as error:  # each storage library has its own error types
        raise InvalidInput(
            f"{CHECKPOINTS} of {folder.name} is {address!r}, which cannot be used "
            f"({type(error).__name__}: {error}); correct the address, or install its library."
        ) from error
    return None if inside else trials


def mark_checkpoints(folder: RunFolder) -> None:
    """Write the marker of the search into its folder of checkpoints elsewhere, unless that holds something already.

    Raises:
        StorageFailure: the storage fails.
        InvalidInput: the folder is marked as another search's, which has the same name in another runs folder.
    """
    trials = checkpoints_elsewhere(folder)
    if trials is None:
        return
    folder.own_id()  # written the first time
    owner = _owner(folder)
    if content := read_whole(trials.parent / MARKER):
        with reading(trials.parent / MARKER):
            other = json.loads(content)
            if other["id"] != owner["id"]:
                raise InvalidInput(
                    f"{CHECKPOINTS}: {trials.parent} holds the checkpoints of another search, {other['search']}; give "
                    "another address, or this search another name."
                )
    elif not ask(trials, lambda: trials.parent.exists() and any(trials.parent.iterdir())):
        write_json(trials.parent / MARKER, owner)


def owns_checkpoints(folder: RunFolder, trials: AnyPath) -> bool:
    """Return True if the search in ``folder`` made the folder of ``trials``: not a copy, nor a search of its name.

    Raises:
        StorageFailure: the storage fails.
    """
    content = read_whole(trials.parent / MARKER)
    try:
        return content is not None and folder.identity.exists() and json.loads(content) == _owner(folder)
    except DAMAGED:
        return False


def _owner(folder: RunFolder) -> dict[str, Any]:
    return {"search": str(folder.path.resolve()), "id": folder.identity.read_text("utf-8").strip()}
