"""Passwords in addresses, which come from the environment and are never written to a file."""

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    pass

_REFERENCE = re.compile(r"\$\{(\w+)\}")
_PASSWORD = re.compile(
    r"(://[^/@\s:]*:)[^@\s]+(?=@)"  # of a user
    r"|((?:password|passwd|secret|token|signature|access_key|api_?key|(?<![a-z])sig)=)[^&;\s'\"]+",  # of a query
    re.IGNORECASE,
)


def expand(address: str) -> str:
    """``address`` with every ``${NAME}`` replaced by that environment variable.

    Raises:
        Mistakes: a variable is not set.
    """
    missing = [name for name in _REFERENCE.findall(address) if name not in os.environ]
    if missing:
        raise Mistakes(f"{address} needs the environment variable {', '.join(missing)}, which is not set; export it.")
    return _REFERENCE.sub(lambda match: os.environ[match[1]], address)


def holds_password(address: str) -> bool:
    """Whether a password stands in ``address`` itself, and not a reference to one."""
    return without_password(plain := _REFERENCE.sub("", address)) != plain


def without_a_password(address: str) -> str:
    """``address``, in which no password may stand.

    Raises:
        Mistakes: one does; it is not shown.
    """
    if holds_password(address):
        raise Mistakes(
            f"it holds a password ({without_password(address)}); write it as a reference such as "
            "${DATABASE_PASSWORD} and export that."
        )
    return address


def without_password(text: str) -> str:
    """``text``, an address or a message that quotes one, fit to be shown."""
    return _PASSWORD.sub(lambda match: f"{match[1] or match[2]}***", text)


def health_page(uri: str) -> str:
    """What everybody may ask of the server at ``uri``, so without the user that it may name."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/health").geturl()
