"""Files written whole or not at all, locally and in object stores."""

import io
import json
import os
import secrets
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

from trainables.mistakes import Mistakes
from trainables.storage import AnyPath, ask, in_time, of_storage


def read_whole(path: AnyPath) -> bytes | None:
    """What the file at ``path`` holds; None where there is none.

    Raises:
        StorageFailure: it cannot be read.
    """
    size = ask(path, lambda: path.stat().st_size if path.exists() else None)
    return None if size is None else ask(path, path.read_bytes, size)


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
        in_time(path.exists)
    except Exception as error:  # every store's library has its own
        raise Mistakes(
            f"{address} cannot be looked at ({type(error).__name__}: {error}); install its library, see that this "
            "machine may use it, or mend the address."
        ) from error
    return path


_DRAFT = ".draft"

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
    """Remove what writers below ``folder`` that were killed did not finish; nobody else may be writing there."""
    if isinstance(folder, Path):
        for draft in folder.rglob(f".*{_DRAFT}"):
            draft.unlink(missing_ok=True)


def write_json(path: AnyPath, value: Any) -> None:
    """Write ``value`` as indented JSON; NaN and infinity are refused, since JSON has neither."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_text(path: AnyPath, text: str) -> None:
    """Write ``text`` as UTF-8."""
    write_whole(path, lambda file: file.write(text.encode()))
