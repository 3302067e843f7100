"""The cache of image stores: its size limit, shared locks on used stores, and eviction of the others.

A used store is never removed, however small the limit: the limit is for stores kept for later use.
"""

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

from trainables.common.errors import InvalidInput
from trainables.common.storage import existing

logger = logging.getLogger(__name__)

LIMIT = "HOLDOUT_CACHE_GB"  # environment variable with the size limit in gigabytes
SHARE = 0.5  # default limit, as a fraction of the space that would be free without the stores
DRAFT = ".draft"  # suffix of a store that is being built or removed
_STORE = re.compile(rf"[0-9a-f]{{64}}({re.escape(DRAFT)})?")  # names in the cache folder, which may contain other files


# Locks: users of a store share a lock on ``<digest>.used``, and a process that removes the store needs it exclusively.
# The file's modification time is that of the last use. The system releases the lock however its holder ends.


def lock_file(store: Path) -> Path:
    return store.with_name(f"{store.name}.used")


class InUse:
    """Shared lock on ``store``, which need not exist yet; held until :meth:`close` or garbage collection.

    In a folder where this process may not write there may be no lock file. The store is then used without a lock.
    """

    def __init__(self, store: Path) -> None:
        self.close: Callable[[], object] = lambda: None
        try:
            file = os.open(lock_file(store), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            return
        self.close = weakref.finalize(self, os.close, file)
        fcntl.flock(file, fcntl.LOCK_SH)  # waits at most for the renaming of a store that is removed
        os.utime(file)


@contextmanager
def _exclusive(store: Path, create: int = os.O_CREAT) -> Iterator[bool]:
    """Try to lock ``store`` exclusively; yield True on success. New users wait while it is held."""
    file = os.open(lock_file(store), os.O_RDWR | create | os.O_CLOEXEC, 0o666)
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
    """Return True if a process uses ``store`` now; False also if this process may not check."""
    with suppress(OSError), _exclusive(store, create=0) as is_exclusive:
        return not is_exclusive
    return False


def found_or_built(store: Path, needed: Callable[[], int], build: Callable[[Path], object]) -> InUse:
    """Return the lock on ``store``, which one process builds if it does not exist; the others wait for it.

    ``build`` fills a draft folder, which is renamed afterwards; room is made for ``needed()`` bytes.
    """
    in_use = InUse(store)  # locked before it exists, so that it cannot be evicted between building and use
    draft = store.with_suffix(DRAFT)
    if store.is_dir():
        return in_use
    try:
        with filelock.FileLock(store.with_suffix(".lock")):
            if not store.is_dir():  # else another process built it while this one waited
                shutil.rmtree(draft, ignore_errors=True)
                make_room(store.parent, needed)
                draft.mkdir()
                try:
                    build(draft)
                    draft.rename(store)
                finally:
                    shutil.rmtree(draft, ignore_errors=True)
    except BaseException:
        in_use.close()
        raise
    return in_use


@dataclass(frozen=True, kw_only=True)
class CachedStore:
    """A store or a draft: its ``size`` in bytes, and when it was last ``used``, in seconds since 1970."""

    path: Path
    size: int
    used: float

    @property
    def is_draft(self) -> bool:
        """True if it is being built or removed, or if the process doing so was killed."""
        return self.path.suffix == DRAFT


def stores_in(cache: Path) -> list[CachedStore]:
    """List the contents of ``cache``: drafts first, then stores from the least recently used."""
    found = []
    for path in cache.iterdir() if cache.is_dir() else ():
        if not _STORE.fullmatch(path.name) or not path.is_dir() or path.is_symlink():
            continue
        try:
            with os.scandir(path) as entries:
                size = sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
            lock = lock_file(path.with_suffix(""))
            used = (lock if lock.exists() else path).stat().st_mtime  # else it is only created
            found.append(CachedStore(path=path, size=size, used=used))
        except FileNotFoundError:  # removed meanwhile
            continue
    return sorted(found, key=lambda store: (not store.is_draft, store.used, store.path))


def limit_of(cache: Path) -> int:
    """Return the size limit of ``cache`` in bytes."""
    text = os.environ.get(LIMIT)
    if text is None:
        return round(SHARE * (_free(cache) + sum(store.size for store in stores_in(cache))))
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < float("inf"):
        raise InvalidInput(f"{LIMIT} must be a number of gigabytes, such as 200; it is {text!r}.")
    return round(gigabytes * 1e9)


def make_room(cache: Path, needed: Callable[[], int] = lambda: 0, limit: int | None = None) -> list[CachedStore]:
    """Remove unused stores, least recently used first, until ``needed()`` more bytes fit; return those removed.

    They fit if they are within the ``limit``, by default :func:`limit_of`, and free on the disk. Abandoned drafts are
    always removed. ``needed`` is called only if there is a store to remove.
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
    """Remove a store or a draft unless a process uses or builds it; return True if it was removed."""
    store = path.with_suffix("")
    draft = store.with_suffix(DRAFT)
    try:
        with filelock.FileLock(store.with_suffix(".lock"), timeout=0):
            if path != draft:
                with _exclusive(store) as is_exclusive:
                    if not is_exclusive:
                        return False
                    shutil.rmtree(draft, ignore_errors=True)
                    path.rename(draft)  # atomic: no reader sees a partial store
            shutil.rmtree(draft)
    except (filelock.Timeout, FileNotFoundError, PermissionError):  # being built, already removed, another user's
        return False
    return True


def _free(cache: Path) -> int:
    return shutil.disk_usage(existing(cache)).free
