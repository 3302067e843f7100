"""How many bytes a folder takes, on this machine or in a store elsewhere; links in it are not followed."""

import os
from pathlib import Path

from trainables.files.storage import AnyPath, within

PATIENCE_S = 15.0


def file_size(path: Path) -> int:
    """The bytes of a file, 0 where there is none; a link counts as itself."""
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def folder_size(path: Path) -> int:
    """The bytes of all files below ``path``, 0 where there is no such folder; what a link leads to does not count."""
    if path.is_symlink():
        return 0
    return sum(file_size(Path(folder, name)) for folder, _, files in os.walk(path) for name in files)


def size_elsewhere(folder: AnyPath) -> int:
    """The same of a path, or a URL whose store may be away.

    Raises:
        TimeoutError: its store does not answer.
        Exception: whatever its store's library has against it.
    """
    return folder_size(folder) if isinstance(folder, Path) else within(PATIENCE_S, lambda: _size_in_store(folder))


def _size_in_store(folder: AnyPath) -> int:
    return sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file())
