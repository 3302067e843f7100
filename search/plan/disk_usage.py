"""Disk usage of searches, campaigns and decoded images."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from search.plan.runs import RunFolder, find_runs, stored_config
from search.secrets import without_password
from search.trust import CHECKPOINTS, check_addresses
from trainables.data.store.cache import is_used, last_used, limit_of
from trainables.data.store.contents import INDEX
from trainables.files import as_path
from trainables.mistakes import Mistakes
from trainables.storage import AnyPath, existing, within

# Sizes and free space.

PATIENCE_S = 15.0
"""Time limit for a remote storage to list its files."""


def free_bytes(path: Path) -> int:
    """Return the free bytes on the file system where ``path`` is or will be."""
    return shutil.disk_usage(existing(path)).free


def file_size(path: Path) -> int:
    """Return the bytes of a file, or of a link itself; 0 if it does not exist."""
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def folder_size(path: Path) -> int:
    """Return the bytes of all files in the folder ``path``, without following links; 0 if it does not exist."""
    if path.is_symlink():
        return 0
    return sum(file_size(Path(folder, name)) for folder, _, files in os.walk(path) for name in files)


def _size_anywhere(folder: AnyPath) -> int:
    """Return the bytes of a local or remote folder.

    Raises:
        TimeoutError: the storage does not answer.
        Exception: any error raised by the storage backend.
    """
    if isinstance(folder, Path):
        return folder_size(folder)
    return within(PATIENCE_S, lambda: sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file()))


# Decoded images.

UNREADABLE = (Mistakes, OSError, LookupError, TypeError, ValueError)
"""Errors from the search file of an older version, or one that was edited by hand."""


def default_cache() -> str:
    """Return the folder for decoded images if the search file names none."""
    return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdout")


@dataclass(frozen=True, kw_only=True)
class StoreUsage:
    """One image store and its ``size`` in bytes.

    ``used`` is its last use in seconds since 1970; ``in_use`` is True while a process of this machine uses it.
    ``dataset`` and ``short_side`` are None if an older version wrote it; so are ``classes`` and ``images`` if it is
    unfinished.
    """

    path: str
    size: int
    used: float
    in_use: bool
    dataset: str | None = None
    short_side: int | None = None
    classes: int | None = None
    images: int | None = None


def image_stores(searches: Iterable[RunFolder]) -> list[StoreUsage]:
    """Return the stores in this machine's cache and in the caches that ``searches`` name, largest first."""
    stores = [_store(path) for cache in caches_of(searches) for path in _stores_in(cache)]
    return sorted(stores, key=lambda store: (-store.size, store.path))


def caches_of(searches: Iterable[RunFolder]) -> list[Path]:
    """Return this machine's cache and those that ``searches`` name."""
    caches = {default_cache()}
    for search in searches:
        with suppress(*UNREADABLE):
            config: Mapping[str, Any] = stored_config(search)
            caches.add(str(config["dataset"]["cache"] or default_cache()))
    return [Path(cache) for cache in sorted(caches)]


def _stores_in(cache: Path) -> list[Path]:
    if not cache.is_dir():
        return []
    return [path for path in sorted(cache.iterdir()) if path.is_dir() and not path.is_symlink()]


def _store(path: Path) -> StoreUsage:
    size, used, in_use = folder_size(path), last_used(path.with_suffix("")), is_used(path.with_suffix(""))
    try:
        index = json.loads((path / INDEX).read_text())
        classes, images = len(index["class_names"]), len(index["image_keys"])
    except (OSError, ValueError, LookupError, TypeError):
        return StoreUsage(path=str(path), size=size, used=used, in_use=in_use)
    return StoreUsage(
        path=str(path),
        size=size,
        used=used,
        in_use=in_use,
        dataset=index.get("dataset"),
        short_side=index.get("short_side"),
        classes=classes,
        images=images,
    )


# Searches and campaigns.


class Kind(StrEnum):
    """The kind of an entry of a runs folder."""

    SEARCH = "search"
    CAMPAIGN = "campaign"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class CheckpointsElsewhere:
    """A search's checkpoints outside of its folder: ``size`` in bytes, or the ``problem`` that prevents measuring."""

    address: str
    size: int | None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Disk usage of an entry of a runs folder, in bytes.

    ``size`` is the total in the folder, of which ``studies`` is the database, ``checkpoints`` the trials' folder, and
    ``tests`` the results on the test classes.
    """

    name: str
    kind: Kind
    size: int
    studies: int = 0
    checkpoints: int = 0
    tests: int = 0
    elsewhere: CheckpointsElsewhere | None = None

    @property
    def total(self) -> int:
        """Bytes in the folder and elsewhere, as far as known."""
        return self.size + ((self.elsewhere.size or 0) if self.elsewhere else 0)


@dataclass(frozen=True, kw_only=True)
class DiskUsage:
    """Disk usage of a runs folder and of decoded images, largest first, with the free bytes in both places, and the
    bytes that decoded images may take in this machine's cache."""

    entries: tuple[Usage, ...]
    stores: tuple[StoreUsage, ...]
    free_runs: int
    free_cache: int
    cache_limit: int

    @property
    def total(self) -> int:
        """Bytes of everything."""
        return sum(entry.total for entry in self.entries) + sum(store.size for store in self.stores)


def measure_disk(runs: Path) -> DiskUsage:
    """Measure everything in ``runs``, checkpoints stored elsewhere, and the image cache."""
    names = sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []
    entries = sorted((measure_entry(RunFolder(runs, name)) for name in names), key=lambda entry: -entry.total)
    return DiskUsage(
        entries=tuple(entries),
        stores=tuple(image_stores(find_runs(runs))),
        free_runs=free_bytes(runs),
        free_cache=free_bytes(Path(default_cache())),
        cache_limit=limit_of(Path(default_cache())),
    )


def measure_entry(folder: RunFolder) -> Usage:
    """Measure a search, a campaign's own folder, or anything else in the runs folder."""
    path = folder.path
    if path.is_symlink() or not path.is_dir():
        return Usage(name=folder.name, kind=Kind.OTHER, size=file_size(path))
    size = folder_size(path)
    if not folder.config.is_file():
        return Usage(name=folder.name, kind=Kind.CAMPAIGN if folder.campaign.is_file() else Kind.OTHER, size=size)
    return Usage(
        name=folder.name,
        kind=Kind.SEARCH,
        size=size,
        studies=sum(file_size(file) for file in path.glob("study.db*")),
        checkpoints=folder_size(path / "trials"),
        tests=file_size(folder.test) + folder_size(path / "test"),
        elsewhere=_measured(folder),
    )


def _measured(folder: RunFolder) -> CheckpointsElsewhere | None:
    try:
        found = checkpoints_elsewhere(folder)
    except Mistakes as mistakes:
        return CheckpointsElsewhere(address=CHECKPOINTS, size=None, problem=mistakes.sentences[0])
    if found is None:
        return None
    shown = without_password(str(found))
    try:
        check_addresses(folder.path, stored_config(folder), (CHECKPOINTS,))
        return CheckpointsElsewhere(address=shown, size=_size_anywhere(found))
    except Mistakes as mistakes:
        return CheckpointsElsewhere(address=shown, size=None, problem=mistakes.sentences[0])
    except Exception as error:  # each storage library has its own error types
        reason = without_password(f"{type(error).__name__}: {error}".splitlines()[0])
        return CheckpointsElsewhere(address=shown, size=None, problem=reason)


def checkpoints_elsewhere(folder: RunFolder) -> "AnyPath | None":
    """Return the location of a search's checkpoints if it is outside of its folder and its search file is readable.

    Raises:
        Mistakes: its address is not one that can be used here.
    """
    try:
        config: Mapping[str, Any] = stored_config(folder)
        address = config["checkpoints"]["storage_path"]
    except (Mistakes, LookupError, TypeError):  # written by an older version
        return None
    if not isinstance(address, str):
        return None
    try:
        trials = as_path(f"{address.rstrip('/')}/{folder.name}/trials")
        inside = isinstance(trials, Path) and os.path.realpath(trials) == os.path.realpath(folder.path / "trials")
    except Exception as error:  # each storage library has its own error types
        raise Mistakes(
            f"{CHECKPOINTS} of {folder.name} is {without_password(address)!r}, which cannot be used "
            f"({type(error).__name__}: {error}); correct the address, or install its library."
        ) from error
    return None if inside else trials
