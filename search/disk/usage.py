"""Disk usage of searches, campaigns and decoded images."""

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from search.plan.places import checkpoints_elsewhere, default_cache
from search.plan.runs import RunFolder, find_runs, stored_config
from search.trust import CHECKPOINTS, check_addresses
from trainables.data.store.cache import is_used, limit_of, stores_in
from trainables.errors import InvalidInput
from trainables.secrets import without_password
from trainables.storage import AnyPath, existing, within

PATIENCE_S = 15.0
"""Time limit for a remote storage to list its files."""

UNREADABLE = (InvalidInput, OSError, LookupError, TypeError, ValueError)
"""Errors from the search file of an older version, or one that was edited by hand."""


def free_bytes(path: Path) -> int:
    """Return the free bytes on the file system where ``path`` is or will be."""
    return shutil.disk_usage(existing(path)).free


def size_of(place: AnyPath) -> int:
    """Return the bytes of a file or a folder, local ones without following links; 0 if it does not exist.

    Raises:
        TimeoutError: a remote storage does not answer.
        Exception: any error raised by the storage backend.
    """
    if not isinstance(place, Path):
        return within(PATIENCE_S, lambda: sum(entry.stat().st_size for entry in place.rglob("*") if entry.is_file()))
    paths = [place]
    if place.is_dir() and not place.is_symlink():
        paths = [Path(folder, name) for folder, _, names in os.walk(place) for name in names]
    size = 0
    for path in paths:
        with suppress(FileNotFoundError):  # removed meanwhile
            size += path.lstat().st_size
    return size


def caches_of(searches: Iterable[RunFolder]) -> list[Path]:
    """Return this machine's cache and those that ``searches`` name."""
    caches = {default_cache()}
    for search in searches:
        with suppress(*UNREADABLE):
            config: Mapping[str, Any] = stored_config(search)
            caches.add(str(config["dataset"]["cache"] or default_cache()))
    return [Path(cache) for cache in sorted(caches)]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Bytes of a search with its checkpoints, of another entry of a runs folder, or of a cache of decoded images.

    ``removable`` is the part that no process of this machine uses.
    """

    name: str
    kind: str
    size: int
    removable: int
    note: str = ""


def measure_disk(runs: Path) -> list[Usage]:
    """Measure everything in ``runs`` and its caches of decoded images, the largest first."""
    entries = [_entry(RunFolder(runs, path.name)) for path in (runs.iterdir() if runs.is_dir() else ())]
    caches = [cache_usage(cache) for cache in caches_of(find_runs(runs))]
    return sorted([*entries, *caches], key=lambda usage: (-usage.size, usage.name))


def cache_usage(cache: Path) -> Usage:
    stores = stores_in(cache)
    size = sum(store.size for store in stores)
    in_use = sum(store.size for store in stores if is_used(store.path.with_suffix("")))
    note = f"{decimal(in_use)} in use, limit {decimal(limit_of(cache))}"
    return Usage(name=str(cache), kind="decoded images", size=size, removable=size - in_use, note=note)


def _entry(folder: RunFolder) -> Usage:
    size, kind, note = size_of(folder.path), "other", ""
    if not folder.path.is_symlink() and folder.config.is_file():
        kind = "search"
        try:
            if trials := checkpoints_elsewhere(folder):
                note = f"checkpoints in {without_password(str(trials))}"
                check_addresses(folder.path, stored_config(folder), (CHECKPOINTS,))
                size += size_of(trials)
        except Exception as error:  # each storage library has its own error types
            note = f"checkpoints elsewhere not counted: {without_password(str(error))}"
    elif not folder.path.is_symlink() and folder.campaign.is_file():
        kind = "campaign"
    return Usage(name=folder.name, kind=kind, size=size, removable=size, note=note)
