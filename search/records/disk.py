"""Free space for searches, disk usage of searches, campaigns and decoded images, and the removal of the first two."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from search.config.yaml_file import read_yaml
from search.records.plan import Plan, default_cache
from search.records.runs import CampaignFolder, RunFolder, find_runs, missing, trials_in
from search.trust import CHECKPOINTS, check_addresses, forget
from trainables.common.errors import Failure, InvalidInput, raise_if_any, without_password
from trainables.common.files import DAMAGED, as_path, read_whole, reading, write_json
from trainables.common.storage import AnyPath, DiskFull, ask, existing, within
from trainables.data.store.cache import is_used, limit_of, stores_in

PATIENCE_S = 15.0
"""Time limit for a remote storage to list its files."""


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
        with suppress(InvalidInput, LookupError, TypeError):  # of an older version, or edited by hand
            caches.add(str(read_yaml(search.config)["dataset"]["cache"] or default_cache()))
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
                check_addresses(folder.path, read_yaml(folder.config), (CHECKPOINTS,))
                size += size_of(trials)
        except Exception as error:  # each storage library has its own error types
            note = f"checkpoints elsewhere not counted: {without_password(str(error))}"
    elif not folder.path.is_symlink() and folder.campaign.is_file():
        kind = "campaign"
    return Usage(name=folder.name, kind=kind, size=size, removable=size, note=note)


# The checkpoints of a search outside of its folder, which only that search may remove.

MARKER = "holdout.json"
"""The file in a folder of checkpoints that says which search made it."""


def checkpoints_elsewhere(folder: RunFolder) -> "AnyPath | None":
    """Return the location of a search's checkpoints outside of its folder, if its search file is readable.

    Raises:
        InvalidInput: its address cannot be used here.
    """
    try:
        address = read_yaml(folder.config)["checkpoints"]["storage_path"]
    except (InvalidInput, LookupError, TypeError):  # of an older version, or edited by hand
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
        InvalidInput: the folder is marked as another search's, which has the same name in another runs folder.
    """
    trials = checkpoints_elsewhere(folder)
    if trials is None:
        return
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


def _owner(folder: RunFolder) -> dict[str, Any]:
    return {"search": str(folder.path.resolve()), "id": folder.own_id()}


# Removal.

# Results go before their sources and search files last, so a killed removal leaves a valid earlier state.
FIRST = ("test.json", "summary.json", "selection.json", "study.journal")
LAST = ("search.yaml", "campaign.yaml")


@dataclass(frozen=True, kw_only=True)
class SearchRemoval:
    """Everything that belongs to one search, with its ``size`` in bytes.

    ``elsewhere`` is the place of its checkpoints outside its folder, ``kept`` says what there is not this search's.
    """

    folder: RunFolder
    size: int
    elsewhere: "AnyPath | None" = None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The planned removal of the search or campaign in ``folder``; ``size`` includes checkpoints elsewhere."""

    folder: RunFolder
    size: int
    searches: tuple[SearchRemoval, ...]

    @property
    def names(self) -> list[str]:
        return [search.folder.name for search in self.searches]

    def carry_out(self) -> None:
        """Remove everything; if killed halfway, the removal can be planned and carried out again.

        Raises:
            InvalidInput: another process runs one of the searches; nothing is removed.
            Failure: a storage does not respond.
        """
        folders = list(dict.fromkeys([*(search.folder for search in self.searches), self.folder]))
        with ExitStack() as stack:
            for folder in folders:
                stack.enter_context(folder.only_driver())
            for search in self.searches:
                for name in FIRST:
                    _remove(search.folder.path / name)
                if search.elsewhere is not None:
                    _remove_elsewhere(search.elsewhere)
                _clear(search.folder)
            _clear(self.folder)
        for folder in folders:
            forget(folder.path)
            with suppress(OSError):  # another process has just started a search of this name
                folder.path.rmdir()


def plan_removal(runs: Path, name: str) -> Removal:
    """Plan the removal of the search or campaign ``name``; change nothing.

    Raises:
        InvalidInput: it does not exist, is a link, or is running.
        Failure: the storage of its checkpoints does not respond.
    """
    names = sorted(path.name for path in runs.iterdir() if _holds(RunFolder(runs, path.name))) if runs.is_dir() else []
    if name not in names:
        raise missing("search or campaign", name, runs, names)
    folder, folders = RunFolder(runs, name), [RunFolder(runs, name)]
    if is_campaign := folder.campaign.is_file():
        members = [RunFolder(runs, search) for search in CampaignFolder(runs, name).searches()]
        folders = [member for member in members if _holds(member)]
    raise_if_any([sentence for each in dict.fromkeys((folder, *folders)) for sentence in _hindrances(each)])
    searches = tuple(map(_planned, folders))
    own = size_of(folder.path) if is_campaign else 0
    return Removal(folder=folder, size=own + sum(search.size for search in searches), searches=searches)


def _holds(folder: RunFolder) -> bool:
    """Return True if ``folder`` holds a search or campaign, or only the lock files that a killed removal left."""
    if folder.config.is_file() or folder.campaign.is_file():
        return True
    is_folder = folder.path.is_dir() and not folder.path.is_symlink()
    return is_folder and {*folder.path.iterdir()} <= {*folder.lock_files}


def _hindrances(folder: RunFolder) -> Iterator[str]:
    """Yield the reason why ``folder`` cannot be removed: it is a link, or its search is running."""
    if folder.path.is_symlink():
        yield f"{folder.path} is a link to {folder.path.readlink()}; {NOT_FOLLOWED}"
    elif folder.lock_files[0].exists() and (driver := folder.driver()):
        yield f"The search {folder.name} is being run by {driver}; wait until it ends, or stop it. Nothing was removed."


NOT_FOLLOWED = "links are not followed, so remove the link and its target yourself."


def _planned(folder: RunFolder) -> SearchRemoval:
    size = size_of(folder.path)
    if not folder.config.is_file():  # left by a killed removal
        return SearchRemoval(folder=folder, size=size)
    elsewhere, kept = None, []
    try:
        elsewhere = _own_checkpoints(folder)
        size += 0 if elsewhere is None else size_of(elsewhere)
    except InvalidInput as error:
        kept.append(f"The checkpoints elsewhere are kept: {error.sentences[0]}")
    except Exception as error:  # each storage library has its own error types
        raise Failure(
            f"The checkpoints of {folder.name} elsewhere cannot be read ({error}); check that this "
            "machine can reach them and run the command again. Nothing was removed."
        ) from error
    return SearchRemoval(folder=folder, size=size, elsewhere=elsewhere, kept=tuple(kept))


def _own_checkpoints(folder: RunFolder) -> "AnyPath | None":
    """Return the checkpoints of a search outside its folder; None if there are none.

    Raises:
        InvalidInput: they are kept, since their folder is a link, not allowed, or not made by this search.
        Exception: any error raised by the storage backend.
    """
    trials = checkpoints_elsewhere(folder)
    if trials is None:
        return None
    if isinstance(trials, Path) and trials.parent.is_symlink():
        raise InvalidInput(f"{trials.parent} is a link; {NOT_FOLLOWED}")
    check_addresses(folder.path, read_yaml(folder.config), (CHECKPOINTS,))
    if ask(trials, trials.parent.exists):
        content, owner = read_whole(trials.parent / MARKER), None
        with suppress(*DAMAGED):
            owner = json.loads(content or b"")
        if not (folder.identity.exists() and owner == _owner(folder)):  # a copy, or another search of its name
            raise InvalidInput(f"the marker {MARKER} beside {trials} does not name this search.")
    return trials


def _clear(folder: RunFolder) -> None:
    """Empty a locked folder except for its lock files, search and campaign files last."""
    paths = [path for path in folder.path.iterdir() if path not in folder.lock_files]
    for path in sorted(paths, key=lambda path: path.name in LAST):
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, a folder or a link (not its target)."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def _remove_elsewhere(trials: AnyPath) -> None:
    """Remove the checkpoints in ``trials``, then the marker beside them, and the folder of both if it is now empty."""
    try:
        for path in (trials, trials.parent / MARKER):
            if isinstance(path, Path):
                _remove(path)
            else:
                with suppress(FileNotFoundError):
                    path.fs.rm(path.path, recursive=path is trials)
    except Exception as error:  # any error raised by the storage backend
        raise Failure(
            f"The checkpoints at {trials} cannot be removed ({type(error).__name__}: {error}); "
            "check the permissions of this machine and run the command again."
        ) from error
    with suppress(Exception):  # it is not empty, or the storage has no folders
        parent = trials.parent
        parent.rmdir() if isinstance(parent, Path) else parent.fs.rmdir(parent.path)
