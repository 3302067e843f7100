"""Ownership of the folders that a search makes outside of its runs folder, which only their own search may remove."""

import json
import uuid
from typing import Any

from search.plan.disk_usage import checkpoints_elsewhere
from search.plan.runs import RunFolder
from trainables.files import DAMAGED, read_whole, write_json, write_text
from trainables.storage import AnyPath, ask

MARKER = "holdout.json"
"""The file in a folder of checkpoints that says which search made it."""


def mark_checkpoints(folder: RunFolder) -> None:
    """Write the marker of the search into its folder of checkpoints elsewhere, unless that holds something already.

    Raises:
        StorageFailure: the storage fails.
    """
    trials = checkpoints_elsewhere(folder)
    if trials is None or ask(trials, lambda: trials.parent.exists() and any(trials.parent.iterdir())):
        return
    if not folder.identity.exists():
        write_text(folder.identity, f"{uuid.uuid4().hex}\n")
    write_json(trials.parent / MARKER, _owner(folder))


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
    return {"search": str(folder.path.resolve()), "id": folder.identity.read_text().strip()}
