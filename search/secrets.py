"""Passwords come from the environment and never stand in a file: ``${NAME}`` in an address is filled in at use."""

import os
import re
from urllib.parse import urlsplit

from trainables.mistakes import Mistakes

_REFERENCE = re.compile(r"\$\{(\w+)\}")


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
    password = urlsplit(_REFERENCE.sub("", address)).password
    return bool(password)


def without_password(address: str) -> str:
    """``address`` fit to be shown."""
    parts = urlsplit(address)
    if not parts.password:
        return address
    return address.replace(f":{parts.password}@", ":***@", 1)
