"""The cache of image stores: its limit, its users, and eviction of the least recently used."""

import errno
import fcntl
import logging
import os
import re
import shutil
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import filelock

from trainables.mistakes import Mistakes
from trainables.storage import existing

# Who uses an image store: a lock that all its users share, and that whoever removes it needs alone.
#
# It is on a file beside the store, ``<digest>.used``, whose time says when the store was used last. The system lets
# go of
# the lock when a user's process ends, however it ends.


def use_file(store: Path) -> Path:
    """The file of the lock."""
    return store.with_name(f"{store.name}.used")


class InUse:
    """Uses ``store``, which need not be there yet, until :meth:`close`, or until nothing refers to this any more.

    Where this process may not write, there need be no file to lock: who may not write there removes nothing either.

    Raises:
        OSError: the folder is not there, or is full.
    """

    def __init__(self, store: Path) -> None:
        self.close: Callable[[], object] = lambda: None
        try:
            file = os.open(use_file(store), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            return
        self.close = weakref.finalize(self, os.close, file)
        fcntl.flock(file, fcntl.LOCK_SH)  # waits at most for as long as somebody takes to put the store aside
        os.utime(file)


@contextmanager
def alone(store: Path) -> Iterator[bool]:
    """Whether nobody uses ``store``; if so, who wants to use it waits.

    Raises:
        OSError: this process may not write there.
    """
    file = os.open(use_file(store), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(file)


def is_used(store: Path) -> bool:
    """Whether a process uses ``store`` now; False where this process may not know."""
    try:
        file = os.open(use_file(store), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def last_used(store: Path) -> float:
    """When ``store`` was used last, in seconds since 1970; of one that nobody noted it of, when it was made; else 0."""
    for path in (use_file(store), store):
        with suppress(FileNotFoundError):
            return path.stat().st_mtime
    return 0.0


# Room in a cache of image stores: how much they may take, and the least recently used ones removed beyond it.
#
# What a process uses is never removed, however little room there is: the limit is for what is kept for later.

logger = logging.getLogger(__name__)

LIMIT = "HOLDOUT_CACHE_GB"
SHARE = 0.5
"""Of what would be free without the stores they may take so much, where the environment does not say."""

DRAFT = ".draft"
_STORE = re.compile(rf"[0-9a-f]{{64}}({re.escape(DRAFT)})?")
"""A cache may be a folder that holds other things too."""


@dataclass(frozen=True, kw_only=True)
class CachedStore:
    """A store, or the draft of one: its ``size`` in bytes, and when it was ``used`` last, in seconds since 1970."""

    path: Path
    size: int
    used: float

    @property
    def is_draft(self) -> bool:
        """Whether it is being made, or removed, or who did that was killed."""
        return self.path.suffix == DRAFT


def stores_in(cache: Path) -> list[CachedStore]:
    """What is in ``cache``, the least recently used first, drafts before all."""
    found = []
    for path in _folders(cache):
        try:
            with os.scandir(path) as entries:
                size = sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
            found.append(CachedStore(path=path, size=size, used=last_used(path.with_suffix(""))))
        except FileNotFoundError:  # removed at this moment
            continue
    return sorted(found, key=lambda store: (not store.is_draft, store.used, store.path))


def _folders(cache: Path) -> Iterator[Path]:
    if cache.is_dir():
        yield from (
            path for path in cache.iterdir() if _STORE.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
        )


def limit_of(cache: Path) -> int:
    """How many bytes the stores of ``cache`` may take.

    Raises:
        Mistakes: the environment says so in a form that is not known.
    """
    text = os.environ.get(LIMIT)
    if text is None:
        return round(SHARE * (_free(cache) + sum(store.size for store in stores_in(cache))))
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < float("inf"):
        raise Mistakes(f"{LIMIT} must be a number of gigabytes, such as 200; it is {text!r}.")
    return round(gigabytes * 1e9)


def make_room(cache: Path, needed: Callable[[], int] = lambda: 0, limit: int | None = None) -> list[CachedStore]:
    """Remove stores that nobody uses until so many bytes more are within the limit, and free; what was removed.

    Drafts that nobody makes go in any case.

    Args:
        cache: the folder of the stores.
        needed: gives the bytes; asked where there is something that can be removed.
        limit: in bytes; None: that of :func:`limit_of`.
    """
    limit = limit_of(cache) if limit is None else limit
    stores = stores_in(cache)
    total = sum(store.size for store in stores)
    more = needed() if any(not store.is_draft for store in stores) else 0
    removed = []
    for store in stores:
        if not store.is_draft and total + more <= limit and more <= _free(cache):
            break
        if _remove(store.path):
            logger.info("Removed the image store %s (%.1f GB).", store.path, store.size / 1e9)
            removed.append(store)
            total -= store.size
    return removed


def _remove(path: Path) -> bool:
    """Remove a store or a draft unless it is used, or is made at this moment; whether it is gone."""
    store = path.with_suffix("")
    draft = store.with_suffix(DRAFT)
    try:
        with filelock.FileLock(store.with_suffix(".lock"), timeout=0):
            if path != draft:
                with alone(store) as is_alone:
                    if not is_alone:
                        return False
                    shutil.rmtree(draft, ignore_errors=True)
                    path.rename(draft)  # in one step: nobody sees half a store
            shutil.rmtree(draft)
    except (filelock.Timeout, FileNotFoundError, PermissionError):  # made now, gone already, or another user's
        return False
    return True


def _free(cache: Path) -> int:
    return shutil.disk_usage(existing(cache)).free
