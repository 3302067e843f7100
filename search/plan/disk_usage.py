"""What takes room on disk: searches, campaigns and cached images."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from search.plan.runs import RunFolder, find_runs, stored_config, stored_split
from search.secrets import without_password
from trainables.data.augment import Frame, short_side_needed
from trainables.data.store.cache import is_used, last_used, limit_of
from trainables.data.store.contents import INDEX
from trainables.files import as_path
from trainables.mistakes import Mistakes
from trainables.storage import AnyPath, existing, within
from trainables.training.config import RESIZE

# How many bytes a folder takes, on this machine or in a store elsewhere; links in it are not followed.

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


# The decoded images of a node: where they are, and what is there.

UNREADABLE = (Mistakes, OSError, LookupError, TypeError, ValueError)
"""What the file of a search raises that an older version wrote, or that was edited by hand."""


def default_cache() -> str:
    """Where a node keeps decoded images when the search file names no folder."""
    return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdout")


@dataclass(frozen=True, kw_only=True)
class StoreUsage:
    """One image store and its ``size`` in bytes.

    ``dataset`` and ``short_side`` are None where an older version wrote it, and ``classes`` and ``images`` too where it
    is not whole: it is being made, or who made it was killed. ``searches`` are those of the runs folder whose images
    these are. It was ``used`` last at a time in seconds since 1970, and is ``in_use`` where a process of this machine
    uses it now.
    """

    path: str
    size: int
    used: float
    in_use: bool
    dataset: str | None = None
    short_side: int | None = None
    classes: int | None = None
    images: int | None = None
    searches: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Images:
    """What a search wants of a store."""

    search: str
    dataset: str
    short_side: int
    classes: frozenset[str]

    def are_in(self, index: Mapping[str, Any]) -> bool:
        return (
            index.get("dataset", self.dataset) == self.dataset
            and index.get("short_side", self.short_side) == self.short_side
            and frozenset(index["class_names"]) == self.classes
        )


def image_stores(searches: Iterable[RunFolder]) -> list[StoreUsage]:
    """The stores in this machine's cache and in the caches that ``searches`` name, the largest first."""
    searches, wanted = list(searches), []
    for search in searches:
        with suppress(*UNREADABLE):
            wanted += _wanted(search, stored_config(search))
    stores = [_store(path, wanted) for cache in caches_of(searches) for path in _stores_in(cache)]
    return sorted(stores, key=lambda store: (-store.size, store.path))


def caches_of(searches: Iterable[RunFolder]) -> list[Path]:
    """This machine's cache and those that ``searches`` name."""
    caches = {default_cache()}
    for search in searches:
        with suppress(*UNREADABLE):
            config: Mapping[str, Any] = stored_config(search)
            caches.add(config["dataset"]["cache"] or default_cache())
    return [Path(cache) for cache in sorted(caches)]


def _stores_in(cache: Path) -> list[Path]:
    if not cache.is_dir():
        return []
    return [path for path in sorted(cache.iterdir()) if path.is_dir() and not path.is_symlink()]


def _wanted(search: RunFolder, config: Mapping[str, Any]) -> list[_Images]:
    """The images of the training half and of the test half."""
    split, training = stored_split(search), config["training"]
    side = training["image_size"]
    frame = Frame(side=side, short_side=training["resize_size"] or round(side * RESIZE))
    short_side = short_side_needed(training["augment"], frame, config["dataset"]["store_size"])
    return [
        _Images(search.name, split.identity, short_side, frozenset(half))
        for half in ((*split.train, *split.validation), split.test)
    ]


def _store(path: Path, wanted: Iterable[_Images]) -> StoreUsage:
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
        searches=tuple(sorted({images.search for images in wanted if images.are_in(index)})),
    )


# What takes room: every search and campaign of a runs folder, the rest of the folder, and the decoded images.


class Kind(StrEnum):
    """What an entry of a runs folder is."""

    SEARCH = "search"
    CAMPAIGN = "campaign"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class CheckpointsElsewhere:
    """A search's checkpoints outside of its folder: ``size`` in bytes, None where ``problem`` says why not."""

    address: str
    size: int | None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What an entry of a runs folder takes, in bytes: ``size`` is all of it in the folder.

    Of that, ``studies`` is the database, ``checkpoints`` the trials' folder, ``tests`` the results on the test classes.
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
        """Bytes here and elsewhere, as far as they are known."""
        return self.size + ((self.elsewhere.size or 0) if self.elsewhere else 0)


@dataclass(frozen=True, kw_only=True)
class DiskUsage:
    """All of it, the largest first, the bytes that are ``free`` where the runs and the images are, and those that
    decoded images may take in this machine's cache."""

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
    """Look at everything below ``runs``, at checkpoints elsewhere and at the image cache; nothing is changed."""
    names = sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []
    entries = sorted((measure_entry(RunFolder(runs, name)) for name in names), key=lambda entry: -entry.total)
    return DiskUsage(
        entries=tuple(entries),
        stores=tuple(image_stores(find_runs(runs))),
        free_runs=free_bytes(runs),
        free_cache=free_bytes(Path(default_cache())),
        cache_limit=limit_of(Path(default_cache())),
    )


def free_bytes(path: Path) -> int:
    """What can be written where ``path`` is or will be."""
    return shutil.disk_usage(existing(path)).free


def measure_entry(folder: RunFolder) -> Usage:
    """What a search, a campaign's own folder, or anything else in the runs folder takes."""
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
    found = checkpoints_elsewhere(folder)
    if found is None:
        return None
    shown = without_password(str(found))
    try:
        return CheckpointsElsewhere(address=shown, size=size_elsewhere(found))
    except Exception as error:  # every store's library has its own
        reason = without_password(f"{type(error).__name__}: {error}".splitlines()[0])
        return CheckpointsElsewhere(address=shown, size=None, problem=reason)


def checkpoints_elsewhere(folder: RunFolder) -> "AnyPath | None":
    """Where a search's checkpoints are, if it is not its own folder, nor a file that says so can be read."""
    try:
        config: Mapping[str, Any] = stored_config(folder)
        address = config["checkpoints"]["storage_path"]
    except (Mistakes, LookupError, TypeError):  # an older version's
        return None
    if address is None:
        return None
    trials = as_path(f"{address.rstrip('/')}/{folder.name}/trials")
    inside = isinstance(trials, Path) and os.path.realpath(trials) == os.path.realpath(folder.path / "trials")
    return None if inside else trials
