"""Whether nothing is held any more."""

import fcntl
from pathlib import Path


def lock_differences(folder: Path) -> list[str]:
    """The locks below ``folder`` that somebody still holds."""
    said = []
    for file in sorted(folder.rglob("*.lock")):
        with file.open("rb") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                said.append(f"{file.relative_to(folder)} is held.")
    return said
