"""Files on local disks and in object stores, written completely or not at all; and arrays in files of NumPy."""

import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import textwrap
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tokenize import TokenError
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any
from zipfile import BadZipFile

from trainables.common.errors import InvalidInput, shortened
from trainables.common.storage import AnyPath, ask, in_time, storage_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAMAGED = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError, EOFError, BadZipFile)
"""Exceptions raised by reading a file that is truncated, corrupted or of an unexpected form."""

_DRAFT = ".draft"


# Addresses


def absolute(path: str) -> str:
    """Return a path that the user wrote, for processes in other folders; a leading ``~`` is the home folder."""
    return os.path.abspath(os.path.expanduser(path))


def as_path(address: str) -> AnyPath:
    """Return ``address`` as a path; a URL such as ``s3://bucket/folder`` becomes a path in a store known to fsspec."""
    if "://" not in address:
        return Path(os.path.expanduser(address))
    from upath import UPath  # not installed on machines that only train

    return UPath(address, use_listings_cache=False)  # other processes write there too


def given_path(address: str) -> AnyPath:
    """Return a user's ``address`` as :func:`as_path` does; it need not exist.

    Raises:
        InvalidInput: it cannot be accessed, or has a password, which would appear wherever the address is written.
    """
    user, _, host = address.partition("://")[2].partition("/")[0].rpartition("@")
    if ":" in user:
        raise InvalidInput(
            f"The address at {host} holds a password; leave it out, the storage library finds user and password by "
            "itself (see CLUSTER.md)."
        )
    try:
        path = as_path(address)
        in_time(path.exists)
    except Exception as error:  # every storage library has its own exceptions
        raise InvalidInput(
            f"{shortened(address)} cannot be accessed ({type(error).__name__}: "
            f"{getattr(error, 'strerror', None) or error}); install its library, check that this machine has access, "
            "or correct the address."
        ) from error
    return path


# Reading


def read_whole(path: AnyPath) -> bytes | None:
    """Return the content of the file at ``path``, or None if there is no file; it may raise a StorageFailure."""
    size = ask(path, lambda: path.stat().st_size if path.exists() else None)
    return None if size is None else ask(path, path.read_bytes, size)


def read_regular(path: AnyPath) -> bytes:
    """Return the content of a file; raise ``OSError`` for a pipe, which would block, or a device, which may not end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.read_bytes()


def json_digest(content: Any) -> str:
    """Return the SHA-256 (hex) of ``content`` as JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def digest_of(content: bytes) -> str:
    """Return the SHA-256 (hex) of ``content``."""
    return hashlib.sha256(content).hexdigest()


def file_digest(path: "AnyPath | None") -> str | None:
    """Return the SHA-256 (hex) of a file; None if it is missing."""
    return digest_of(path.read_bytes()) if path is not None and path.is_file() else None


def in_digest_order(names: Sequence[str]) -> list[int]:
    """Return the positions of ``names`` in the order of the names' SHA-256."""
    return sorted(range(len(names)), key=lambda row: hashlib.sha256(names[row].encode()).digest())


def read_json(path: AnyPath) -> Any:
    """Return the JSON in the file at ``path``; raise :class:`InvalidInput` if it does not contain JSON."""
    with reading(path):
        return json.loads(read_regular(path))


@contextmanager
def reading(what: object, fix: str = "restore it from a copy") -> Iterator[None]:
    """Convert errors in the content of ``what``, a file of this program, to :class:`InvalidInput`, ended by ``fix``."""
    try:
        yield
    except InvalidInput:
        raise
    except DAMAGED as error:
        if isinstance(getattr(error, "obj", None), ModuleType):
            raise  # a name that a library lacks
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 120)
        raise InvalidInput(f"{what} is damaged, or another version wrote it ({reason}); {fix}.") from error


# Writing


def write_whole(path: AnyPath, write: Callable[[IO[bytes]], object], *, new: bool = False) -> None:
    """Let ``write`` fill a new file and move it to ``path`` atomically, so that a reader never sees a partial file.

    Raises:
        DiskFull: there is no space left. The previous file at ``path`` is unchanged.
        StorageFailure: ``path`` cannot be written.
        FileExistsError: it exists, and has to be ``new``.
    """
    write_together({path: write}, new=new)


def write_together(files: Mapping[AnyPath, Callable[[IO[bytes]], object]], *, new: bool = False) -> None:
    """Write files as :func:`write_whole` does; none is moved to its path before all are written."""
    drafts: dict[Path, Path] = {}
    try:
        for path, write in files.items():
            if not isinstance(path, Path):  # most object stores show a file only once it is complete
                content = io.BytesIO()
                write(content)
                ask(path, partial(path.parent.mkdir, parents=True, exist_ok=True))
                ask(path, partial(path.write_bytes, content.getvalue()), len(content.getbuffer()))
                continue
            drafts[path] = draft = draft_of(path)
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with draft.open("xb") as file:  # exclusive: never another process's file or a planted link
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
        for path, draft in drafts.items():
            if new:
                path.touch(exist_ok=False)  # if two processes write it at once, the second is refused
            with storage_errors(path):
                draft.replace(path)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def write_text(path: AnyPath, text: str, *, new: bool = False) -> None:
    write_whole(path, lambda file: file.write(text.encode()), new=new)


def write_json(path: AnyPath, value: Any) -> None:
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Return ``value`` as indented JSON. NaN and infinity raise ``ValueError``, since JSON has neither."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def is_draft(path: Path) -> bool:
    """Return True for the partial file of a writer, which may have been killed."""
    return path.name.startswith(".") and path.name.endswith(_DRAFT)


def draft_of(path: Path) -> Path:
    """Return a new path at which this process writes the file or folder ``path``, before it is moved there."""
    return path.with_name(f"{_start_of_draft(path)}.{os.getpid()}-{secrets.token_hex(4)}{_DRAFT}")


def _start_of_draft(path: Path) -> str:
    name = os.fsencode(path.name)  # it may have the 255 bytes that file systems allow
    return f".{path.name if len(name) <= 200 else digest_of(name)[:16]}"


def remove_dead_drafts(folder: Path, of: Path | None = None) -> None:
    """Remove drafts in ``folder``, or of the path ``of`` in it, whose process ended or had the number of this one."""
    for draft in folder.glob(f".*{_DRAFT}"):
        start, _, writer = draft.name.removesuffix(_DRAFT).rpartition(".")
        number = writer.partition("-")[0]
        is_dead = number.isdecimal() and (int(number) == os.getpid() or not _is_running(int(number)))
        if is_dead and (of is None or start == _start_of_draft(of)):
            if draft.is_dir() and not draft.is_symlink():
                shutil.rmtree(draft, ignore_errors=True)
            else:
                draft.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True


def remove_drafts(folder: AnyPath) -> None:
    """Remove partial files left below ``folder`` by killed writers; no other process may be writing there."""
    if isinstance(folder, Path):
        for draft in folder.rglob(f".*{_DRAFT}"):
            draft.unlink(missing_ok=True)


# Arrays of numbers and text in NumPy's npz files, from which nothing is unpickled.


def read_arrays(source: Path | bytes, *names: str) -> "dict[str, NDArray[Any]]":
    """Return the arrays ``names`` of the npz file at, or with the content, ``source``; by default all of them.

    An exception of :data:`DAMAGED` is raised if it is damaged, lacks an array, or if one holds objects.
    """
    import numpy as np

    with _opened(source) as file:
        arrays = {name: file[name] for name in names or file.files}
    if strange := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(f"{strange[0]:.40} is no array")
    return arrays


def array_names(source: Path) -> set[str]:
    """Return the names of the arrays in the npz file at ``source``; errors as in :func:`read_arrays`."""
    with _opened(source) as file:
        if twice := [name for name, times in Counter(file.files).items() if times > 1]:
            raise ValueError(f"it has {twice[0]:.40} twice")
        return set(file.files)


@contextmanager
def _opened(source: Path | bytes) -> Iterator[Any]:
    import numpy as np

    try:
        content = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
        with content:
            file = np.load(content, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise ValueError("it is one array, as np.save writes it; name its arrays in np.savez")
            with file:
                yield file
    except (SyntaxError, TokenError, MemoryError, RuntimeError, zlib.error) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        fix = "an array has the dtype object, which is pickled; convert it, as in labels.astype(str)"
        raise ValueError(fix) from error
