"""Failures of storage: full disks, time-outs, and object stores that do not answer.

A storage failure differs from an error in the code by its origin, not by the type of the exception. Any error
while this program reads or writes its own files is a failure of the storage. An error raised by a loss, a network or a
user-defined data set is an error in that code, even if it is an ``OSError`` such as a missing file. For an image file
only the errors in :data:`OUTAGES` count: a missing or broken image stays missing or broken.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from trainables.common.errors import Failure

if TYPE_CHECKING:
    from upath import UPath


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Times in seconds."""

    store_s: float = 120.0
    """One request to an object store, plus its transfer at ``bytes_a_second``."""
    bytes_a_second: float = 1e6
    """Lowest transfer rate that counts as working."""
    machine_said_s: float = 30.0
    """Between two warnings that no trial has a machine."""
    machine_s: float = 2400.0
    """Until the search ends if no machine fits. A machine that reboots is back by then."""
    first_epoch_s: float = 7200.0
    """Silence before the first epoch ends: a worker loads weights and may decode all images on a new machine."""
    silence_s: float = 600.0
    """Least silence after the first epoch: a network file system may be away for minutes."""


LIMITS = Limits()

AnyPath: TypeAlias = "Path | UPath"

Kind = TypeVar("Kind", bound=BaseException)
Answer = TypeVar("Answer")

OUTAGES = frozenset(
    {
        errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EPIPE, errno.EHOSTDOWN, errno.EHOSTUNREACH,
        errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.ENODEV,
    }
)  # fmt: skip
"""Error numbers of an unreachable disk or network: the file is readable again once that is back."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield ``error`` and its chain of causes (``__cause__``, else ``__context__``)."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def cause_of(error: BaseException, kind: type[Kind]) -> Kind | None:
    """Return the first of the :func:`causes` of type ``kind``, or None."""
    return next((cause for cause in causes(error) if isinstance(cause, kind)), None)


# Full disks


class DiskFull(Failure):
    """Failure to write a file for lack of space."""

    @classmethod
    def at(cls, address: object, instead: str = "") -> "DiskFull":
        """Return the error for the file or folder ``address``, a path or a URL; ``instead`` is an alternative fix."""
        free = f", where {_free_space(address)}" if isinstance(address, Path) else ""
        return cls(
            f"There is no space left for {address}{free}. Free some space there{f' or {instead}' if instead else ''}, "
            "then run the same command again; finished work is kept."
        )


def existing(path: Path) -> Path:
    """Return the nearest existing path: ``path`` or its closest existing parent."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())


def _free_space(path: Path) -> str:
    """Describe the free space at ``path``, which need not exist yet."""
    there = os.statvfs(existing(path))
    if there.f_files and not there.f_favail:
        return "no further file can be made (no inode is free)"
    return f"{there.f_bavail * there.f_frsize / 1e6:,.1f} MB are free"


def is_full(error: BaseException) -> bool:
    """Return True if a full disk or an exhausted quota is among the causes of ``error``."""
    return any(
        isinstance(cause, DiskFull) or getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        for cause in causes(error)
    )


@contextmanager
def full_disk_errors(address: object) -> Iterator[None]:
    """Convert errors of a full disk to :class:`DiskFull`, for the file named in the error, else ``address``."""
    try:
        yield
    except DiskFull:
        raise
    except Exception as error:
        if not is_full(error):
            raise
        named = getattr(error, "filename", None)
        raise DiskFull.at(Path(named) if isinstance(named, str) else address) from error


# Failing storage


class StorageFailure(Failure, OSError):
    """Failure of ``place``, a path or a URL, with ``error``."""

    def __init__(self, place: object, error: BaseException) -> None:
        super().__init__(f"{_shown(place)} failed ({type(error).__name__}: {error}).")
        self.errno = getattr(error, "errno", None)
        self.strerror = getattr(error, "strerror", None) or str(error) or type(error).__name__
        self._made_of = _shown(place), error

    def __str__(self) -> str:
        return str(self.args[0])  # OSError's own would expect a number and a text

    def __reduce__(self) -> "tuple[type[StorageFailure], tuple[str, BaseException]]":
        return type(self), self._made_of  # keeps the attributes when pickled


def _shown(place: object) -> str:
    """Return ``place`` with its host, which FTP and SFTP paths store separately, and without its user."""
    host = getattr(place, "storage_options", {}).get("host")
    return str(place).replace(":///", f"://{host}/", 1) if host else str(place)


@contextmanager
def storage_errors(place: AnyPath) -> Iterator[None]:
    """Convert errors of the storage at ``place`` to :class:`StorageFailure` or :class:`DiskFull`.

    For a local path these are exceptions with an ``OSError`` among their causes (PyTorch wraps them in its own); others
    are of what is to be written. For an object store it is every exception, since each client library has its own.
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
            with suppress(ImportError):  # the failure is that its library is missing
                import fsspec

                fsspec.get_filesystem_class(place.protocol).clear_instance_cache()  # a cut connection would be reused
        raise StorageFailure(place, cause) from error


# Time limits


def ask(place: AnyPath, question: Callable[[], Answer], size: float = 0, limits: Limits = LIMITS) -> Answer:
    """Return ``question()``, which accesses ``place`` and transfers ``size`` bytes, or raise :class:`StorageFailure`.

    Requests to an object store have a time limit: client libraries may retry or wait forever. Local paths have none,
    since the system does not interrupt a blocked disk operation.
    """
    with storage_errors(place):
        return question() if isinstance(place, Path) else in_time(question, size, limits)


def in_time(question: Callable[[], Answer], size: float = 0, limits: Limits = LIMITS) -> Answer:
    """Return ``question()``, which transfers ``size`` bytes, within the time limit of an object store."""
    return within(limits.store_s + size / limits.bytes_a_second, question)


def within(seconds: float, question: Callable[[], Answer]) -> Answer:
    """Return, or raise, the outcome of ``question()``; after ``seconds`` raise ``TimeoutError``, and it runs on."""
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
