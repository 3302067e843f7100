"""Files are written whole or not at all, on this machine and in stores elsewhere.

A place that refuses, times out or fails is told apart from mistakes in the code. The line is drawn by who was at work,
not by the kind of the error. What our own reading and writing of files meets is the place's failure; what a loss, a
network or a data set of one's own raises is a mistake in its code, even where it is an ``OSError`` such as a file that
it does not find. Of an image file only :data:`OUTAGES` count: one that is missing or broken stays so.
"""

import errno
import io
import json
import os
import secrets
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar
from zipfile import BadZipFile

from trainables.mistakes import Failure, Mistakes

if TYPE_CHECKING:
    from upath import UPath

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
        cause = _os_error(error) if isinstance(place, Path) else error
        if cause is None:
            raise
        if is_full(cause):
            raise DiskFull.at(place) from error
        if not isinstance(place, Path):
            _forget_connections(place.protocol)
        raise StorageFailure(place, cause) from error


def within(seconds: float, ask: Callable[[], Answer]) -> Answer:
    """What ``ask`` returns, or raises, if it does so in time.

    Raises:
        TimeoutError: it did not; it is left behind.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(ask())
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
        return question() if isinstance(place, Path) else within(ANSWER_S + size / BYTES_A_SECOND, question)


def read_whole(path: AnyPath) -> bytes | None:
    """What the file at ``path`` holds; None where there is none.

    Raises:
        StorageFailure: it cannot be read.
    """
    size = ask(path, lambda: path.stat().st_size if path.exists() else None)
    return None if size is None else ask(path, path.read_bytes, size)


def _os_error(error: BaseException | None) -> OSError | None:
    """The ``OSError`` that ``error`` is, or that was raised before it."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def as_path(address: str) -> AnyPath:
    """``address`` as a path; with a scheme, as in ``s3://bucket/folder``, one in a store that fsspec knows."""
    if "://" not in address:
        return Path(address)
    from upath import UPath  # not on every machine that only trains

    return UPath(address, use_listings_cache=False)  # other processes write there too


def given_path(address: str) -> AnyPath:
    """As :func:`as_path`, of an address that a user gives; there need not be anything.

    Raises:
        Mistakes: it holds a password, which would stand wherever the address is written, or it cannot be looked at.
    """
    user, _, host = address.partition("://")[2].partition("/")[0].rpartition("@")
    if ":" in user:
        raise Mistakes(
            f"The address at {host} holds a password; leave it out, its library finds user and password by itself (see "
            "CLUSTER.md)."
        )
    try:
        path = as_path(address)
        within(ANSWER_S, path.exists)
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


DAMAGED = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError, EOFError, BadZipFile)
"""What reading a file raises that is cut off, garbled, or of another form than was thought."""


@contextmanager
def reading(what: object, mend: str = "restore it from a copy") -> Iterator[None]:
    """What stumbles over the content of ``what``, something that this program wrote, says so in a sentence.

    Raises:
        Mistakes: it is damaged, or another version wrote it; ``mend`` says what helps.
    """
    try:
        yield
    except Mistakes:
        raise
    except DAMAGED as error:
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 120)
        raise Mistakes(f"{what} is damaged, or another version wrote it ({reason}); {mend}.") from error


def read_json(path: AnyPath) -> Any:
    """The JSON in the file at ``path``.

    Raises:
        OSError: it cannot be read.
        Mistakes: it holds none.
    """
    with reading(path):
        return json.loads(path.read_bytes())


def write_whole(path: AnyPath, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a new file and put it at ``path`` in one step, so that no reader ever sees half of it.

    Raises:
        DiskFull: there is no space for it. What was at ``path`` is still there.
        StorageFailure: it cannot be written there.
    """
    if not isinstance(path, Path):  # most stores show a file when they have all of it
        content = io.BytesIO()
        write(content)
        ask(path, lambda: _put(path, content.getvalue()), len(content.getbuffer()))
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{_DRAFT}")
    with of_storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("xb") as file:  # a file of this process alone, and no link that somebody laid there
                write(file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def _put(path: AnyPath, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


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
