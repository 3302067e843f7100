"""Removal of a search or campaign."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from search.disk.usage import size_of
from search.plan.places import MARKER, checkpoints_elsewhere, owns_checkpoints
from search.plan.runs import CampaignFolder, RunFolder, missing, stored_config
from search.trust import CHECKPOINTS, check_addresses, forget
from trainables.errors import Failure, InvalidInput, raise_if_any
from trainables.storage import AnyPath, ask

# Results go before their sources and search files last, so a killed removal leaves a valid earlier state.
FIRST = ("test.json", "summary.json", "selection.json", "study.journal")
LAST = ("search.yaml", "campaign.yaml")


@dataclass(frozen=True, kw_only=True)
class SearchRemoval:
    """Everything that belongs to one search, with its ``size`` in bytes.

    ``elsewhere`` is the place of its checkpoints outside its folder. ``kept`` says what its file names elsewhere and is
    not removed, since this search did not make it.
    """

    folder: RunFolder
    size: int
    elsewhere: "AnyPath | None" = None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The planned removal of the search or campaign in ``folder``, with all of its searches.

    ``size`` includes checkpoints stored elsewhere.
    """

    folder: RunFolder
    size: int
    searches: tuple[SearchRemoval, ...]

    @property
    def names(self) -> list[str]:
        return [search.folder.name for search in self.searches]

    def carry_out(self) -> None:
        """Remove everything. If killed halfway, the removal can be planned and carried out again.

        Raises:
            InvalidInput: another process runs one of the searches; nothing is removed.
            Failure: a storage does not respond.
        """
        folders = list(dict.fromkeys([*(search.folder for search in self.searches), self.folder]))
        with ExitStack() as stack:
            for folder in folders:
                stack.enter_context(folder.only_driver())
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
    check_addresses(folder.path, stored_config(folder), (CHECKPOINTS,))
    if ask(trials, trials.parent.exists) and not owns_checkpoints(folder, trials):
        raise InvalidInput(f"the marker {MARKER} beside {trials} does not name this search.")
    return trials


def _remove_search(search: SearchRemoval) -> None:
    folder = search.folder
    for name in FIRST:
        _remove(folder.path / name)
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
            f"The checkpoints at {trials} cannot be removed ({type(error).__name__}: {error}); "
            "check the permissions of this machine and run the command again."
        ) from error
    with suppress(Exception):  # it is not empty, or the storage has no folders
        parent = trials.parent
        parent.rmdir() if isinstance(parent, Path) else parent.fs.rmdir(parent.path)
