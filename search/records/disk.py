"""Free space for searches, disk usage of searches, campaigns and decoded images, and the removal of the first two."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal

from search.config.yaml_file import read_yaml
from search.records.plan import Plan, default_cache
from search.records.runs import CampaignFolder, RunFolder, find_runs, missing, trials_in
from search.trust import CHECKPOINTS, forget
from trainables.common.errors import InvalidInput, raise_if_any, without_password
from trainables.common.files import as_path, read_whole, reading, write_json
from trainables.common.storage import DiskFull, ask, existing
from trainables.data.store.cache import is_used, limit_of, stores_in


def free_bytes(path: Path) -> int:
    """Return the free bytes on the file system where ``path`` is or will be."""
    return shutil.disk_usage(existing(path)).free


LEAST_FREE = 10_000_000
"""Bytes without which no search starts."""


def check_space(plans: Sequence[Plan]) -> dict[Path, int]:
    """Return the free bytes where searches will write; in a cache, unused decoded images count as free.

    Raises:
        DiskFull: less than :data:`LEAST_FREE` is free in one of these folders.
    """
    caches = {Path(images.cache) for images in {plan.images for plan in plans} if images.find() is None}
    written = [place for plan in plans for place in (plan.folder.runs, as_path(plan.checkpoint_storage))]
    free = {place.absolute(): free_bytes(place) for place in written if isinstance(place, Path)}
    free |= {cache.absolute(): free_bytes(cache) + cache_usage(cache).removable for cache in caches}
    for place, size in free.items():
        if size < LEAST_FREE:
            raise DiskFull.at(place)
    return free


def size_of(place: Path) -> int:
    """Return the bytes of a file or a folder, without following links."""
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
        with suppress(InvalidInput, LookupError, TypeError):  # of an older version, or edited by hand
            caches.add(str(read_yaml(search.config)["dataset"]["cache"] or default_cache()))
    return [Path(cache) for cache in sorted(caches)]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Bytes of a search, of another entry of a runs folder, or of a cache of decoded images.

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
        if trials := checkpoints_elsewhere(folder):
            note = f"and checkpoints in {without_password(trials)}"
    elif not folder.path.is_symlink() and folder.campaign.is_file():
        kind = "campaign"
    return Usage(name=folder.name, kind=kind, size=size, removable=size, note=note)


# The checkpoints of a search outside of its folder, which only that search writes and its user removes.

MARKER = "holdout.json"
"""The file in a folder of checkpoints that says which search made it."""


def checkpoints_elsewhere(folder: RunFolder) -> str | None:
    """Return the address of a search's checkpoints outside of its folder, if its search file is readable."""
    try:
        address = read_yaml(folder.config)["checkpoints"]["storage_path"]
        if address is None:
            return None
        trials = trials_in(str(address), folder.name)
        is_inside = os.path.realpath(os.path.expanduser(trials)) == os.path.realpath(folder.path / "trials")
    except (InvalidInput, LookupError, TypeError, ValueError):  # of an older version, or edited by hand
        return None
    return None if is_inside else trials


def mark_checkpoints(folder: RunFolder) -> None:
    """Write the marker of the search into its folder of checkpoints elsewhere, unless that holds something already.

    Raises:
        InvalidInput: the folder is marked as another search's, which has the same name in another runs folder.
    """
    if (address := checkpoints_elsewhere(folder)) is None:
        return
    place = as_path(address).parent
    owner = {"search": str(folder.path.resolve()), "id": folder.own_id()}
    if content := read_whole(place / MARKER):
        with reading(place / MARKER):
            other = json.loads(content)
            if other["id"] != owner["id"]:
                raise InvalidInput(
                    f"{CHECKPOINTS}: {place} holds the checkpoints of another search, {other['search']}; remove them "
                    "if that is gone, or give another address, or this search another name."
                )
    elif not ask(place, lambda: place.exists() and any(place.iterdir())):
        write_json(place / MARKER, owner)


# Removal.

# Results go before their sources and search files last, so a killed removal leaves a valid earlier state.
FIRST = ("test.json", "summary.json", "selection.json", "study.journal")
LAST = ("search.yaml", "campaign.yaml")


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The planned removal of the search or campaign in ``folder`` and its ``searches``, with its ``size`` in bytes.

    ``kept`` are sentences on checkpoints elsewhere, which are not removed.
    """

    folder: RunFolder
    searches: tuple[RunFolder, ...]
    size: int
    kept: tuple[str, ...]

    def carry_out(self) -> None:
        """Remove everything; if killed halfway, the removal can be planned and carried out again.

        Raises:
            InvalidInput: another process runs one of the searches; nothing is removed.
        """
        folders = list(dict.fromkeys([*self.searches, self.folder]))
        with ExitStack() as stack:
            for folder in folders:
                stack.enter_context(folder.only_driver())
            for folder in folders:
                _clear(folder)
        for folder in folders:
            forget(folder.path)
            with suppress(OSError):  # another process has just started a search of this name
                folder.path.rmdir()


def plan_removal(runs: Path, name: str) -> Removal:
    """Plan the removal of the search or campaign ``name``; change nothing.

    Raises:
        InvalidInput: it does not exist, is a link, or is running.
    """
    names = sorted(path.name for path in runs.iterdir() if _holds(RunFolder(runs, path.name))) if runs.is_dir() else []
    if name not in names:
        raise missing("search or campaign", name, runs, names)
    folder, searches = RunFolder(runs, name), [RunFolder(runs, name)]
    if folder.campaign.is_file():
        members = [RunFolder(runs, search) for search in CampaignFolder(runs, name).searches()]
        searches = [member for member in members if _holds(member)]
    folders = list(dict.fromkeys((folder, *searches)))
    raise_if_any([sentence for each in folders for sentence in _hindrances(each)])
    kept = tuple(
        f"The checkpoints of {search.name} in {without_password(place)} are kept; remove them there yourself."
        for search in searches
        if (place := checkpoints_elsewhere(search))
    )
    size = sum(size_of(each.path) for each in folders)
    return Removal(folder=folder, searches=tuple(searches), size=size, kept=kept)


def _holds(folder: RunFolder) -> bool:
    """Return True if ``folder`` holds a search or campaign, or only the lock files that a killed removal left."""
    if folder.config.is_file() or folder.campaign.is_file():
        return True
    is_folder = folder.path.is_dir() and not folder.path.is_symlink()
    return is_folder and {*folder.path.iterdir()} <= {*folder.lock_files}


def _hindrances(folder: RunFolder) -> Iterator[str]:
    """Yield the reason why ``folder`` cannot be removed: it is a link, or its search is running."""
    if folder.path.is_symlink():
        yield (
            f"{folder.path} is a link to {folder.path.readlink()}; links are not followed, so remove the link and its "
            "target yourself."
        )
    elif folder.lock_files[0].exists() and (driver := folder.driver()):
        yield f"The search {folder.name} is being run by {driver}; wait until it ends, or stop it. Nothing was removed."


def _clear(folder: RunFolder) -> None:
    """Empty a locked folder except for its lock files, in the order that a kill may interrupt."""

    def place(path: Path) -> int:
        return FIRST.index(path.name) if path.name in FIRST else len(FIRST) + (path.name in LAST)

    for path in sorted(folder.path.iterdir(), key=place):
        if path not in folder.lock_files:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
