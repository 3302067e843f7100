"""A disk without space: where, what is free, and what helps."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables.files.causes import causes
from trainables.mistakes import Failure


class DiskFull(Failure):
    """Something could not be written for want of space; the message says where, what is free and what helps."""

    @classmethod
    def at(cls, address: object, instead: str = "") -> "DiskFull":
        """The file or folder ``address``, a path or a URL, could not be written; ``instead`` is another way out."""
        free = f", where {free_space(address)}" if isinstance(address, Path) else ""
        return cls(
            f"There is no space left for {address}{free}. Make room there{f' or {instead}' if instead else ''}, and "
            "give the same command again; what is done stays done."
        )


def existing(path: Path) -> Path:
    """The nearest folder that there is: ``path``, or what it will be in."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())


def free_space(path: Path) -> str:
    """What is free where ``path`` is or will be, in words."""
    there = os.statvfs(existing(path))
    if there.f_files and not there.f_favail:
        return "no further file can be made (no inode is free)"
    return f"{there.f_bavail * there.f_frsize / 1e6:,.1f} MB are free"


def is_full(error: BaseException) -> bool:
    """Whether ``error`` comes of a full disk or a used-up quota, also where a library raised another one from it."""
    return any(
        isinstance(cause, DiskFull) or getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        for cause in causes(error)
    )


@contextmanager
def full_disk_said(address: object, instead: str = "") -> Iterator[None]:
    """What is written here goes to ``address``, unless its error names a file.

    Raises:
        DiskFull: there is no space for it.
    """
    try:
        yield
    except DiskFull:
        raise
    except Exception as error:
        if not is_full(error):
            raise
        named = getattr(error, "filename", None)
        raise DiskFull.at(Path(named) if isinstance(named, str) else address, instead) from error
