"""Files are written whole or not at all, on this machine and in stores elsewhere."""

import errno
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from trainables.mistakes import Failure, Mistakes

if TYPE_CHECKING:
    from upath import UPath

AnyPath: TypeAlias = "Path | UPath"


def as_path(address: str) -> AnyPath:
    """``address`` as a path; with a scheme, as in ``s3://bucket/folder``, one in a store that fsspec knows."""
    if "://" not in address:
        return Path(address)
    from upath import UPath  # not on every machine that only trains

    return UPath(address, use_listings_cache=False)  # other processes write there too


def given_path(address: str) -> AnyPath:
    """As :func:`as_path`, of an address that a user gives; there need not be anything.

    Raises:
        Mistakes: it cannot be looked at.
    """
    try:
        path = as_path(address)
        path.exists()
    except Exception as error:  # every store's library has its own
        raise Mistakes(
            f"{address} cannot be looked at ({type(error).__name__}: {error}); install its library, see that this "
            "machine may use it, or mend the address."
        ) from error
    return path


_DRAFT = ".draft"


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
    causes: BaseException | None = error
    while causes is not None:
        if isinstance(causes, DiskFull) or getattr(causes, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        causes = causes.__cause__ or causes.__context__
    return False


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


def write_whole(path: AnyPath, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a new file and put it at ``path`` in one step, so that no reader ever sees half of it.

    Raises:
        DiskFull: there is no space for it. What was at ``path`` is still there.
    """
    with full_disk_said(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(path, Path):
            _write_here(path, write)
        else:  # most stores show a file when they have all of it
            content = io.BytesIO()
            write(content)
            path.write_bytes(content.getvalue())


def _write_here(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}{_DRAFT}")
    try:
        with draft.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def remove_drafts(folder: AnyPath) -> None:
    """Remove what writers below ``folder`` that were killed did not finish, or others have not finished yet."""
    if isinstance(folder, Path):
        for draft in folder.rglob(f".*{_DRAFT}"):
            draft.unlink(missing_ok=True)


def write_json(path: AnyPath, value: Any) -> None:
    """Write ``value`` as indented JSON; NaN and infinity are refused, since JSON has neither."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_text(path: AnyPath, text: str) -> None:
    """Write ``text`` as UTF-8."""
    write_whole(path, lambda file: file.write(text.encode()))
