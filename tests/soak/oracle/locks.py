"""Whether nothing is held any more."""

import fcntl
from pathlib import Path

from soak.oracle.studies import SQLITE, rows

_HELD = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory'"


def lock_differences(folder: Path, storage: str) -> list[str]:
    """The locks below ``folder`` and in the database ``storage`` that somebody still holds."""
    said = []
    for file in sorted(folder.rglob("*.lock")):
        with file.open("rb") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                said.append(f"{file.relative_to(folder)} is held.")
    if not storage.startswith(SQLITE) and (held := rows(storage, _HELD)[0][0]):
        said.append(f"{held} advisory locks are held in the database.")
    return said
