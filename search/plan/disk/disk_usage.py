"""What takes room: every search and campaign of a runs folder, the rest of the folder, and the decoded images."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from search.config.secrets import without_password
from search.plan.disk.folder_size import file_size, folder_size, size_elsewhere
from search.plan.disk.image_cache import StoreUsage, default_cache, image_stores
from search.plan.runs import RunFolder, find_runs, stored_config
from trainables.data.store.room import limit_of
from trainables.files.disk_full import existing
from trainables.files.storage import AnyPath
from trainables.files.whole import as_path
from trainables.mistakes import Mistakes


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
