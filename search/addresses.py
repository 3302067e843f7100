"""Addresses: SQLite's files, MLflow's pages, and passwords, which stand in environment variables alone."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from trainables.common.errors import PASSWORD, InvalidInput, refer, without_password
from trainables.common.files import absolute

if TYPE_CHECKING:
    from sqlalchemy import URL

_REFERENCE = re.compile(r"\$\{(\w+)\}")


def expand(address: str) -> str:
    """Replace every ``${NAME}`` in ``address`` by that environment variable.

    Values are quoted where libraries unquote them, so that an ``@`` or ``/`` in a password does not end it. From then
    on :func:`trainables.common.errors.without_password` shows the references instead of the values.

    Raises:
        InvalidInput: a variable is not set.
    """
    missing = [name for name in _REFERENCE.findall(address) if name not in os.environ]
    if missing:
        raise InvalidInput(
            f"{address} needs the environment variable {', '.join(missing)}, which is not set; export it."
        )
    refer(_REFERENCE.findall(address))

    def value(reference: re.Match[str]) -> str:
        in_user, in_query = "@" in address[reference.end() :], "?" in address[: reference.start()]
        return quote(os.environ[reference[1]], safe="" if in_user or in_query else "/:[]")

    return _REFERENCE.sub(value, address)


def without_a_password(address: str) -> str:
    """Return ``address``; raise if it contains a password itself and not a reference to one."""
    if PASSWORD.search(_REFERENCE.sub("", address)):
        raise InvalidInput(
            f"it holds a password ({address}); write it as a reference such as ${{DATABASE_PASSWORD}} and export that."
        )
    return address


def health_page(uri: str) -> str:
    """Return the address of the health check of the server at ``uri``, without the user and password."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/health").geturl()


def sqlite_address(file: Path) -> str:
    """Return the address of the SQLite database ``file``, whose name may hold any character."""
    from sqlalchemy import URL  # takes half a second

    return URL.create("sqlite", database=str(file)).render_as_string()


def absolute_sqlite(address: str) -> str:
    """Return the address of a SQLite file without ``~`` and not relative to the current folder; others unchanged."""
    scheme, _, path = address.partition(":///")
    if not (scheme.startswith("sqlite") and path) or path.startswith(("/", "${")):
        return address
    above, _, below = path.partition("/") if path.startswith("~") else (".", "", path)
    return f"{scheme}{sqlite_address(Path(absolute(above))).removeprefix('sqlite')}/{below}"


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


# MLflow's pages.

LOCAL_SERVER = "http://127.0.0.1:5000"
"""The address of ``mlflow/serve.sh``."""
RESULTS = "holdout-results"
"""The key of the view of an experiment that shows the results."""


def results_page(uri: str | None, experiments: Sequence[str]) -> str | None:
    """Return the address of the results in ``experiments`` (ids) at ``uri``, by default the local server.

    None if that is a database. The rows of several experiments are one table. Without ``workflowType``, MLflow 3.17
    opens every experiment as one of generative AI.
    """
    server = without_password(uri or LOCAL_SERVER).rstrip("/")
    if not server.startswith(("http://", "https://")):
        return None
    several = f"compare-experiments/s?experiments={quote(json.dumps(experiments, separators=(',', ':')))}&"
    page = several if len(experiments) > 1 else f"experiments/{experiments[0]}/runs?"
    return f"{server}/#/{page}workflowType=machine_learning&viewStateShareKey={RESULTS}"
