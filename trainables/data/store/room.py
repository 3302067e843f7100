"""Room in a cache of image stores: how much they may take, and the least recently used ones removed beyond it.

What a process uses is never removed, however little room there is: the limit is for what is kept for later.
"""

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock

from trainables.data.store.in_use import alone, last_used
from trainables.files.disk_full import existing
from trainables.mistakes import Mistakes

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
