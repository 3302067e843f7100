"""Who uses an image store: a lock that all its users share, and that whoever removes it needs alone.

It is on a file beside the store, ``<digest>.used``, whose time says when the store was used last. The system lets go of
the lock when a user's process ends, however it ends.
"""

import errno
import fcntl
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
