"""Passwords in addresses: taken from environment variables, never written to a file or shown."""

import os
import re
from urllib.parse import urlsplit

from trainables.mistakes import Mistakes

_REFERENCE = re.compile(r"\$\{(\w+)\}")
_PASSWORD = re.compile(
    r"(://[^/@\s:]*:)[^@\s]+(?=@)"  # of a user
    r"|((?:password|passwd|secret|token|signature|access_key|api_?key|(?<![a-z])sig)=)[^&;\s'\"]+",  # in a query
    re.IGNORECASE,
)


def expand(address: str) -> str:
    """Replace every ``${NAME}`` in ``address`` by that environment variable.

    Raises:
        Mistakes: a variable is not set.
    """
    missing = [name for name in _REFERENCE.findall(address) if name not in os.environ]
    if missing:
        raise Mistakes(f"{address} needs the environment variable {', '.join(missing)}, which is not set; export it.")
    return _REFERENCE.sub(lambda match: os.environ[match[1]], address)


def holds_password(address: str) -> bool:
    """Return True if ``address`` contains a password itself and not a reference to one."""
    return without_password(plain := _REFERENCE.sub("", address)) != plain


def without_a_password(address: str) -> str:
    """Return ``address`` unchanged.

    Raises:
        Mistakes: it contains a password, which the message does not show.
    """
    if holds_password(address):
        raise Mistakes(
            f"it holds a password ({without_password(address)}); write it as a reference such as "
            "${DATABASE_PASSWORD} and export that."
        )
    return address


def without_password(text: str) -> str:
    """Mask the passwords in ``text``, an address or a message that quotes one."""
    return _PASSWORD.sub(lambda match: f"{match[1] or match[2]}***", text)


def health_page(uri: str) -> str:
    """Return the address of the health check of the server at ``uri``, without the user and password."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/health").geturl()
