"""Opening a search's database for its driver, deleting studies, and databases without space."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from sqlalchemy import Engine
from sqlalchemy.engine import ExceptionContext

from search.stages import search_of
from search.study.storage.driver import DriverStorage, retry
from search.study.storage.read import engine_arguments
from trainables.mistakes import Failure
from trainables.storage import DiskFull, causes, existing

# A database that has no space left: said at once in a sentence, since asking again does not make room.

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


# Opening the database of a search for the driver that writes it.

NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "afs", "9p", "fuse")
"""What their types begin with. The shared memory of SQLite's write-ahead log has to be one machine's."""

READERS_S = 2
"""For how long a driver that ends waits for those that read its database."""


@retry  # two processes that make the tables at once are in each other's way for a moment
def open_storage(url: str) -> DriverStorage:
    """The studies in the database at ``url``, which is made where it does not exist.

    Raises:
        DiskFull: there is no space for it, now or when something is written into it.
    """
    with full_database_said(url):
        database = RDBStorage(url, engine_kwargs=engine_arguments(url))
        file = sqlite_file(database.engine)
        if file and not is_on_network(file):
            _journal(database.engine, "WAL")
    watch_space(database.engine)
    return DriverStorage(database)


@retry
def close_storage(storage: DriverStorage) -> None:
    """Let go of the database. SQLite's is left as one file, which can be read where nothing can be written."""
    engine = storage.database.engine
    storage.database.remove_session()
    if sqlite_file(engine):
        engine.dispose()  # the journal can change while nobody else is connected
        with suppress(sqlalchemy.exc.OperationalError, DiskFull):  # who still reads then reads the log too
            _drop_log(engine)
    engine.dispose()


def _drop_log(engine: Engine) -> None:
    """Make one file of the database, again where somebody reads it for a moment: SQLite does not wait for them."""
    for _ in range(READERS_S * 10):
        try:
            _journal(engine, "DELETE")
        except sqlalchemy.exc.OperationalError:
            time.sleep(0.1)
        else:
            return
    _journal(engine, "DELETE")


def _journal(engine: Engine, mode: str) -> None:
    """WAL: a commit is one write that waits for the disk, and nobody who reads waits for it.

    SQLite's default ``synchronous=FULL`` stays: what is committed survives the machine, and not only the process.
    """
    with engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA journal_mode={mode}")


def is_on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether ``path`` lies on a file system that several machines share; False where the system does not say."""
    if not mounts.exists():
        return False
    kinds = {}
    for line in mounts.read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        kinds[Path(point.replace("\\040", " "))] = kind
    path = path.resolve()
    nearest = next((kinds[folder] for folder in (path, *path.parents) if folder in kinds), "")
    return nearest.startswith(NETWORK_FILE_SYSTEMS)


# Deleting the studies of a search from a database that it shares with others.


def study_names(url: str, search: str) -> list[str]:
    """The studies of ``search`` in the database at ``url``; none where it has no table yet.

    Raises:
        Failure: the database does not answer.
    """
    with _at_once(url) as storage:
        return [] if storage is None else _names(storage, search)


def delete_studies(url: str, search: str) -> None:
    """Delete the studies of ``search`` from the database at ``url``, each in a transaction of its own.

    Raises:
        Failure: the database does not answer; what is deleted is deleted, and doing it again deletes the rest.
    """
    with _at_once(url) as storage:
        if storage is not None:
            for name in _names(storage, search):
                optuna.delete_study(study_name=name, storage=storage)


def _names(storage: RDBStorage, search: str) -> list[str]:
    return [name for name in optuna.get_all_study_names(storage) if search_of(name) == search]


@contextmanager
def _at_once(url: str) -> Iterator[RDBStorage | None]:
    """The database without waiting for it: None where nothing was ever stored."""
    import sqlalchemy

    address = sqlalchemy.make_url(url)
    if address.get_backend_name() == "sqlite" and not Path(address.database or "").is_file():
        yield None  # SQLite would make the file
        return
    try:
        storage = RDBStorage(url, engine_arguments(url), skip_compatibility_check=True, skip_table_creation=True)
        try:
            yield storage if sqlalchemy.inspect(storage.engine).has_table("studies") else None
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        shown = address.render_as_string(hide_password=True)
        raise Failure(
            f"The database {shown} does not answer ({reason}); start it and give the command again."
        ) from error
