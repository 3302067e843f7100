"""Failures of storage: full disks, time-outs, and object stores that do not answer."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from trainables.mistakes import Failure

if TYPE_CHECKING:
    from upath import UPath


# What an exception was raised from: libraries wrap the one that tells what happened.

Kind = TypeVar("Kind", bound=BaseException)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """``error``, then the exception that it was raised from or while handling, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def cause_of(error: BaseException, kind: type[Kind]) -> Kind | None:
    """The first of the :func:`causes` that is a ``kind``; None where none is."""
    return next((cause for cause in causes(error) if isinstance(cause, kind)), None)


# A disk without space: where, what is free, and what helps.


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


# What a place where files are kept, a disk or a store elsewhere, may do instead of answering.
#
# A place that refuses, times out or fails is told apart from mistakes in the code. The line is drawn by who was at
# work,
# not by the kind of the error. What our own reading and writing of files meets is the place's failure; what a loss, a
# network or a data set of one's own raises is a mistake in its code, even where it is an ``OSError`` such as a file
# that
# it does not find. Of an image file only :data:`OUTAGES` count: one that is missing or broken stays so.

AnyPath: TypeAlias = "Path | UPath"

Answer = TypeVar("Answer")

ANSWER_S = 120.0

BYTES_A_SECOND = 1e6
"""So slowly may a store take or give what is asked of it, beside :data:`ANSWER_S` for the answer."""

OUTAGES = frozenset(
    {
        errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EPIPE, errno.EHOSTDOWN, errno.EHOSTUNREACH,
        errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.ENODEV,
    }
)  # fmt: skip
"""The errors of a file on a disk or a network that is away: the file is there again when that is back."""


class StorageFailure(Failure, OSError):
    """``place``, a path or a URL where files are kept, failed with ``error``."""

    def __init__(self, place: object, error: BaseException) -> None:
        super().__init__(f"{_shown(place)} failed ({type(error).__name__}: {error}).")
        self.errno = getattr(error, "errno", None)
        self.strerror = getattr(error, "strerror", None) or str(error) or type(error).__name__
        self._made_of = _shown(place), error

    def __str__(self) -> str:
        return str(self.args[0])  # and not OSError's, which is of a number and a text

    def __reduce__(self) -> "tuple[type[StorageFailure], tuple[str, BaseException]]":
        return type(self), self._made_of  # so that it crosses process borders whole


def _shown(place: object) -> str:
    """``place`` with its server, which the paths of some stores (FTP, SFTP) keep apart, and without its user."""
    host = getattr(place, "storage_options", {}).get("host")
    return str(place).replace(":///", f"://{host}/", 1) if host else str(place)


def _forget_connections(protocol: str) -> None:
    """Have the next path connect anew: fsspec hands out the connection that it has, although it was cut (FTP, SFTP)."""
    import fsspec

    with suppress(ImportError):  # its library is missing, which is what failed
        fsspec.get_filesystem_class(protocol).clear_instance_cache()


@contextmanager
def of_storage(place: AnyPath) -> Iterator[None]:
    """What fails within is the failure of ``place``.

    Of a folder, that is whatever an ``OSError`` lies behind: PyTorch tells of a full disk in words of its own. Every
    store's library has errors of its own, so of a store it is whatever is raised.

    Raises:
        DiskFull: there is no space left at ``place``.
        StorageFailure: ``place`` failed.
        Exception: something else did, while it made what was to be written.
    """
    try:
        yield
    except (StorageFailure, DiskFull):
        raise
    except Exception as error:
        cause = cause_of(error, OSError) if isinstance(place, Path) else error
        if cause is None:
            raise
        if is_full(cause):
            raise DiskFull.at(place) from error
        if not isinstance(place, Path):
            _forget_connections(place.protocol)
        raise StorageFailure(place, cause) from error


def in_time(question: Callable[[], Answer], size: float = 0) -> Answer:
    """As :func:`within` the time that a store may take for ``question``, which moves ``size`` bytes."""
    return within(ANSWER_S + size / BYTES_A_SECOND, question)


def within(seconds: float, question: Callable[[], Answer]) -> Answer:
    """What ``question`` returns, or raises, if it does so in time.

    Raises:
        TimeoutError: it did not; it is left behind.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(question())
        except BaseException as error:
            errors.append(error)

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return answers[0]


def ask(place: AnyPath, question: Callable[[], Answer], size: float = 0) -> Answer:
    """What ``question``, which concerns ``place`` and moves ``size`` bytes, returns.

    A store is given up when it has not answered in time: libraries try again for as long as they see fit, or wait for
    ever. A folder is not, since what a disk has not done the system does not let go.

    Raises:
        StorageFailure: ``place`` failed, or did not answer.
    """
    with of_storage(place):
        return question() if isinstance(place, Path) else in_time(question, size)
