"""Removal of a search or campaign."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from search.driver.start_up import only_driver_of
from search.plan.disk_usage import Usage, checkpoints_elsewhere, measure_entry
from search.plan.ownership import MARKER, owns_checkpoints
from search.plan.runs import CampaignFolder, RunFolder, stored_config
from search.secrets import expand, without_password
from search.study import delete_studies, study_names
from search.trust import CHECKPOINTS, STORAGE, addresses_in, check_addresses, forget, started
from trainables.mistakes import Failure, Mistakes, raise_if_any, suggestion
from trainables.storage import AnyPath, ask

# Results go before their sources and search files last, so a killed removal leaves a valid earlier state.
FIRST = ("test.json", "summary.json", "selection.json", "study.db", "study.db-wal", "study.db-shm")
LAST = ("search.yaml", "campaign.yaml")


@dataclass(frozen=True, kw_only=True)
class SharedStudies:
    """The names of a search's studies in a database outside its folder; ``shown`` is the address without password."""

    address: str
    shown: str
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SearchRemoval:
    """Everything that belongs to one search; ``elsewhere`` is the folder of checkpoints outside the runs folder.

    ``kept`` says what its file names elsewhere, and is not removed because this search did not make it.
    """

    folder: RunFolder
    usage: Usage
    elsewhere: "AnyPath | None" = None
    shared: SharedStudies | None = None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The planned removal of the search or campaign in ``folder``, with all of its searches."""

    folder: RunFolder
    usage: Usage
    searches: tuple[SearchRemoval, ...]

    @property
    def is_campaign(self) -> bool:
        """True for a campaign, False for a single search."""
        return self.folder not in [search.folder for search in self.searches]

    @property
    def size(self) -> int:
        """Bytes that are freed, including checkpoints stored elsewhere but no shared databases."""
        return sum(search.usage.total for search in self.searches) + (self.usage.size if self.is_campaign else 0)

    def carry_out(self) -> None:
        """Remove everything. If killed halfway, the removal can be planned and carried out again.

        Raises:
            Mistakes: another process runs one of the searches; nothing is removed.
            Failure: a database or a storage does not respond.
        """
        folders = list(dict.fromkeys([*(search.folder for search in self.searches), self.folder]))
        with ExitStack() as stack:
            for folder in folders:
                stack.enter_context(folder.only_driver())
            for search in self.searches:
                if search.shared and search.shared.address.startswith("postgresql"):
                    stack.enter_context(only_driver_of([search.folder.name], search.shared.address))
            for search in self.searches:
                _remove_search(search)
            _clear(self.folder)
        for folder in folders:
            forget(folder.path)
            with suppress(OSError):  # another process has just started a search of this name
                folder.path.rmdir()


def plan_removal(runs: Path, name: str) -> Removal:
    """Plan the removal of the search or campaign ``name``; change nothing.

    Raises:
        Mistakes: it does not exist, is a link, or is running.
        Failure: its database or the storage of its checkpoints does not respond.
    """
    folder = _existing(runs, name)
    if folder.campaign.is_file():
        members = [RunFolder(runs, search) for search in CampaignFolder(runs, name).searches()]
        folders = [member for member in members if _holds(member)]
    else:
        folders = [folder]
    raise_if_any([sentence for each in dict.fromkeys((folder, *folders)) for sentence in _hindrances(each)])
    searches = tuple(_planned(each) for each in folders)
    return Removal(folder=folder, usage=measure_entry(folder), searches=searches)


def _existing(runs: Path, name: str) -> RunFolder:
    entries = sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []
    names = [entry for entry in entries if _holds(RunFolder(runs, entry))]
    if name in names:
        return RunFolder(runs, name)
    raise Mistakes(
        f"There is no search or campaign {name!r} in {runs}{suggestion(name, names)}; there is: "
        f"{', '.join(names) or 'none yet'}."
    )


def _holds(folder: RunFolder) -> bool:
    """Return True if ``folder`` holds a search or campaign, or only the lock files that a killed removal left."""
    if folder.config.is_file() or folder.campaign.is_file():
        return True
    is_folder = folder.path.is_dir() and not folder.path.is_symlink()
    return is_folder and {*folder.path.iterdir()} <= {*folder.lock_files}


def _hindrances(folder: RunFolder) -> list[str]:
    """Return the reasons why ``folder`` cannot be removed: it is a link, or its search is running."""
    if folder.path.is_symlink():
        return [
            f"{folder.path} is a link to {folder.path.readlink()}; links are not followed, so remove the link and "
            "its target yourself."
        ]
    if folder.lock_files[0].exists() and (driver := folder.driver()):
        return [
            f"The search {folder.name} is being run by {driver}; wait until it ends, or stop it. Nothing was removed."
        ]
    return []


def _planned(folder: RunFolder) -> SearchRemoval:
    if not folder.config.is_file():  # left by a killed removal
        return SearchRemoval(folder=folder, usage=measure_entry(folder))
    usage, elsewhere, kept = measure_entry(folder), None, []
    try:
        elsewhere = checkpoints_elsewhere(folder)
    except Mistakes as error:
        usage = replace(usage, elsewhere=None)
        kept.append(f"The checkpoints elsewhere are kept: {error.sentences[0]}")
    if isinstance(elsewhere, Path) and elsewhere.parent.is_symlink():
        raise Mistakes(
            f"{elsewhere.parent} is a link; links are not followed, so remove the link and its target yourself."
        )
    if elsewhere is not None and (reason := _why_checkpoints_stay(folder, elsewhere)):
        kept.append(f"The checkpoints in {without_password(str(elsewhere))} are kept: {reason}.")
        usage, elsewhere = replace(usage, elsewhere=None), None
    if usage.elsewhere and usage.elsewhere.problem:
        raise Failure(
            f"The checkpoints of {folder.name} at {usage.elsewhere.address} cannot be read "
            f"({usage.elsewhere.problem}); check that this machine can reach them and run the command again. Nothing "
            "was removed."
        )
    storage = addresses_in(stored_config(folder)).get(STORAGE)
    record = started(folder.path)
    if storage is not None and (record is None or record.addresses.get(STORAGE) != storage):
        kept.append(f"The studies in {without_password(str(storage))} are kept: you did not start this search here.")
        storage = None
    shared = _shared_studies(folder, storage) if storage else None
    return SearchRemoval(folder=folder, usage=usage, elsewhere=elsewhere, shared=shared, kept=tuple(kept))


def _why_checkpoints_stay(folder: RunFolder, trials: AnyPath) -> str | None:
    """Return why the checkpoints ``trials`` elsewhere are not removed; None if this search made their folder.

    Raises:
        Failure: their storage does not respond.
    """
    try:
        check_addresses(folder.path, stored_config(folder), (CHECKPOINTS,))
        if not ask(trials, trials.parent.exists) or owns_checkpoints(folder, trials):
            return None
    except Mistakes as error:
        return error.sentences[0].removesuffix(".")
    except Exception as error:  # each storage library has its own error types
        raise Failure(
            f"The checkpoints of {folder.name} at {without_password(str(trials))} cannot be read "
            f"({type(error).__name__}: {error}); check that this machine can reach them and run the command again. "
            "Nothing was removed."
        ) from error
    return f"the marker {MARKER} beside them does not name this search"


def _shared_studies(folder: RunFolder, storage: str) -> SharedStudies:
    address = expand(storage)
    names = tuple(study_names(address, folder.name))
    return SharedStudies(address=address, shown=without_password(storage), names=names)


def _remove_search(search: SearchRemoval) -> None:
    folder = search.folder
    for name in FIRST:
        if name != "study.db" or search.shared is None:
            _remove(folder.path / name)
    if search.shared is not None:
        delete_studies(search.shared.address, folder.name)
    if search.elsewhere is not None:
        _remove_elsewhere(search.elsewhere)
    _clear(folder)


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
            f"The checkpoints at {without_password(str(trials))} cannot be removed ({type(error).__name__}: {error}); "
            "check the permissions of this machine and run the command again."
        ) from error
    with suppress(Exception):  # it is not empty, or the storage has no folders
        parent = trials.parent
        parent.rmdir() if isinstance(parent, Path) else parent.fs.rmdir(parent.path)


def names_of(searches: Sequence[SearchRemoval]) -> list[str]:
    """Return the names of the searches."""
    return [search.folder.name for search in searches]
