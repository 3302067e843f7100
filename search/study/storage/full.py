"""A database that has no space left: said at once in a sentence, since asking again does not make room."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Engine
from sqlalchemy.engine import ExceptionContext

from trainables.files.causes import causes
from trainables.files.disk_full import DiskFull, existing

POSTGRES_FULL = "53100"  # disk_full, https://www.postgresql.org/docs/current/errcodes-appendix.html
SQLITE_NEEDS = 100_000
"""Bytes. With less SQLite cannot map the index of its log (32 KiB and a header), and then it names no reason."""


def sqlite_file(engine: Engine) -> Path | None:
    """The file of a SQLite database; None of any other."""
    address = engine.url
    return Path(address.database) if address.get_backend_name() == "sqlite" and address.database else None


def watch_space(engine: Engine) -> None:
    """Let whatever ``engine`` does from now on raise :class:`DiskFull` where its database has no space left."""

    def handle(context: ExceptionContext) -> None:
        if _is_full(context.original_exception, sqlite_file(engine)):
            raise _full(engine) from context.original_exception

    sqlalchemy.event.listen(engine, "handle_error", handle)


@contextmanager
def full_database_said(url: str) -> Iterator[None]:
    """The same while the database at ``url`` is opened.

    Raises:
        DiskFull: it has no space left.
    """
    try:
        yield
    except Exception as error:
        engine = sqlalchemy.create_engine(url)
        if any(_is_full(getattr(cause, "orig", cause), sqlite_file(engine)) for cause in causes(error)):
            raise _full(engine) from error
        raise


def _is_full(error: Any, file: Path | None) -> bool:
    """Whether the error of a database's library, whose file is ``file`` if it has one, comes of missing space."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return True
        return code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and file is not None and _is_tight(file)
    return getattr(error, "sqlstate", None) == POSTGRES_FULL


def _is_tight(file: Path) -> bool:
    there = os.statvfs(existing(file.parent))
    return there.f_bavail * there.f_frsize < SQLITE_NEEDS or bool(there.f_files and not there.f_favail)


def _full(engine: Engine) -> DiskFull:
    return DiskFull.at(sqlite_file(engine) or engine.url.render_as_string())
