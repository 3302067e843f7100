"""Addresses: SQLite's files, and passwords, which are environment variables and never written to a file or shown."""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from trainables.errors import InvalidInput

if TYPE_CHECKING:
    from sqlalchemy import URL

_REFERENCE = re.compile(r"\$\{(\w+)\}")
_PASSWORD = re.compile(
    r"(://[^/@\s:]*:)((\$\{\w+\})|[^@\s]+)(?=@)"  # of a user, or the reference to one
    r"|((?:password|passwd|secret|token|signature|access_key|api_?key|(?<![a-z])sig)=)"  # in a query
    r"(?:(\$\{\w+\})(?=[&;\s'\"]|$)|[^&;\s'\"]+)",
    re.IGNORECASE,
)


_PARTS = re.compile(
    r"(?P<scheme>[^:/?#]*:)?(?://(?P<user>[^/?#]*@)?(?P<host>[^/?#]*))?(?P<path>[^?#]*)(?P<rest>.*)", re.DOTALL
)
_HOST = re.compile(r"[\w.:-]*", re.ASCII)

_known: dict[str, str] = {}
"""The values that this process put into addresses, and their quoted forms, with the references to them."""


def expand(address: str) -> str:
    """Replace every ``${NAME}`` in ``address`` by that environment variable.

    Values are quoted where libraries unquote them, so that an ``@`` or ``/`` in a password does not end it. From then
    on :func:`without_password` shows the reference instead of the value.

    Raises:
        InvalidInput: a variable is not set, or its value cannot stand there.
    """
    missing = [name for name in _REFERENCE.findall(address) if name not in os.environ]
    if missing:
        raise InvalidInput(
            f"{address} needs the environment variable {', '.join(missing)}, which is not set; export it."
        )
    parts = _PARTS.fullmatch(address)
    assert parts is not None, "every text has these parts"

    def filled(part: str) -> str:
        return _REFERENCE.sub(lambda match: _value(match, part, address), parts[part] or "")

    slashes = "//" if parts["host"] is not None else ""
    return f"{filled('scheme')}{slashes}{filled('user')}{filled('host')}{filled('path')}{filled('rest')}"


def _value(reference: re.Match[str], part: str, address: str) -> str:
    """Return the value of a reference, as it is written in this part of an address."""
    value = os.environ[reference[1]]
    forms = {value, quote(value), quote(value, safe=""), repr(value)[1:-1], json.dumps(value)[1:-1]}
    _known.update({form: reference[0] for form in forms if form})
    if part in ("user", "rest"):
        return quote(value, safe="")
    if part == "path":
        return quote(value)
    if not _HOST.fullmatch(value):
        raise InvalidInput(f"The value of {reference[0]} cannot stand where {address} has it; export another one.")
    return value


def holds_password(address: str) -> bool:
    """Return True if ``address`` contains a password itself and not a reference to one."""
    return _masked(plain := _REFERENCE.sub("", address)) != plain


def without_a_password(address: str) -> str:
    """Return ``address`` unchanged.

    Raises:
        InvalidInput: it contains a password, which the message does not show.
    """
    if holds_password(address):
        raise InvalidInput(
            f"it holds a password ({without_password(address)}); write it as a reference such as "
            "${DATABASE_PASSWORD} and export that."
        )
    return address


def without_password(text: str) -> str:
    """Mask the passwords in ``text``, an address or a message that quotes one, and the values of its variables.

    A value is shown as the reference to it, as in the address that was written.
    """
    for value in sorted(_known, key=len, reverse=True):
        parts = re.split(f"{re.escape(value)}(?!=)", text)  # a key is no value
        text = _known[value].join(parts)
    return _masked(text)


def _masked(text: str) -> str:
    return _PASSWORD.sub(lambda match: match[0] if match[3] or match[5] else f"{match[1] or match[4]}***", text)


def health_page(uri: str) -> str:
    """Return the address of the health check of the server at ``uri``, without the user and password."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/health").geturl()


def sqlite_address(file: Path) -> str:
    """Return the address of the SQLite database ``file``, whose name may hold any character."""
    from sqlalchemy import URL  # takes half a second

    return URL.create("sqlite", database=str(file)).render_as_string()


def sqlite_file(address: "str | URL") -> Path | None:
    """Return the file of a SQLite database; None for every other address, and for what is no address."""
    if not str(address).startswith("sqlite"):
        return None
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        database = make_url(address).database
    except (ArgumentError, ValueError):
        return None
    return Path(database) if database else None
