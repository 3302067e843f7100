"""Files are written whole or not at all, on this machine and in stores elsewhere."""

import io
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from trainables.mistakes import Mistakes

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
        path.exists()
    except Exception as error:  # every store's library has its own
        raise Mistakes(
            f"{address} cannot be looked at ({type(error).__name__}: {error}); install its library, see that this "
            "machine may use it, or mend the address."
        ) from error
    return path


def write_whole(path: AnyPath, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a new file and put it at ``path`` in one step, so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(path, Path):  # most stores show a file when they have all of it
        content = io.BytesIO()
        write(content)
        path.write_bytes(content.getvalue())
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:  # a file of this process alone, and no link that somebody laid there
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: AnyPath, value: Any) -> None:
    """Write ``value`` as indented JSON; NaN and infinity are refused, since JSON has neither."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_text(path: AnyPath, text: str) -> None:
    """Write ``text`` as UTF-8."""
    write_whole(path, lambda file: file.write(text.encode()))
