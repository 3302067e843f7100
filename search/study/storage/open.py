"""The database of a search: opened and closed by its driver, copied into memory, and studies deleted from it."""

import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.study import StudyDirection
from sqlalchemy import Engine
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.pool import NullPool

from search.secrets import sqlite_file
from search.stages import search_of
from search.study.storage import tables
from search.study.storage.driver import DriverStorage
from search.study.storage.read import engine_arguments
from search.study.storage.retry import retry
from trainables.errors import Failure
from trainables.secrets import without_password
from trainables.storage import DiskFull, causes, existing

optuna.logging.set_verbosity(optuna.logging.WARNING)

# A database without free space is an error at once: retrying does not help.

POSTGRES_FULL = "53100"  # disk_full, https://www.postgresql.org/docs/current/errcodes-appendix.html
SQLITE_NEEDS = 100_000
"""In bytes. With less, SQLite cannot map the index of its log (32 KiB and a header) and reports no reason."""


def watch_space(engine: Engine) -> None:
    """Make ``engine`` raise :class:`DiskFull` from now on if its database has no space left."""

    def handle(context: ExceptionContext) -> None:
        if _is_full(context.original_exception, sqlite_file(engine.url)):
            raise _full(engine) from context.original_exception

    sqlalchemy.event.listen(engine, "handle_error", handle)


@contextmanager
def full_disk_detected(url: str) -> Iterator[None]:
    """Convert errors while the database at ``url`` is opened.

    Raises:
        DiskFull: it has no space left.
    """
    try:
        yield
    except Exception as error:
        engine = sqlalchemy.create_engine(url)
        if any(_is_full(getattr(cause, "orig", cause), sqlite_file(engine.url)) for cause in causes(error)):
            raise _full(engine) from error
        raise


def _is_full(error: Any, file: Path | None) -> bool:
    """Return True if a database library's error is caused by a full disk; ``file`` is SQLite's."""
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
    return DiskFull.at(sqlite_file(engine.url) or engine.url.render_as_string())


# Opening and closing the database for the driver.

NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "afs", "9p", "fuse")
"""Prefixes of file system types. SQLite's write-ahead log needs shared memory, so a single machine."""

READERS_S = 2
"""The time that a driver waits at its end for readers of its database."""


@retry  # two processes that create the tables at once get in each other's way for a moment
def open_storage(url: str) -> DriverStorage:
    """Open the database at ``url``, creating it if needed.

    Raises:
        DiskFull: there is no space for it, now or during a later write.
    """
    with full_disk_detected(url):
        file = sqlite_file(url)
        is_new = file is not None and _create_tables(url)
        database = RDBStorage(url, engine_arguments(url), skip_compatibility_check=is_new, skip_table_creation=is_new)
        if file and not is_on_network(file):
            if _is_tight(file):  # with a log but without room for its index, it could not even be read
                raise _full(database.engine)
            _journal(database.engine, "WAL")
    watch_space(database.engine)
    return DriverStorage(database)


@cache
def _statements() -> tuple[str, ...]:
    """Return the SQL that creates Optuna's tables in SQLite, from a database in memory.

    For each new database Optuna would import its whole history of schemas three times, and a campaign opens many.
    """
    storage = RDBStorage("sqlite://")
    with closing(storage.engine.raw_connection()) as connection:
        dump: Iterator[str] = connection.driver_connection.iterdump()  # type: ignore[union-attr]
        return tuple(statement for statement in dump if statement not in ("BEGIN TRANSACTION;", "COMMIT;"))


def _create_tables(url: str) -> bool:
    """Create the tables in a new SQLite database, in one transaction; return False if it has tables already."""
    engine = sqlalchemy.create_engine(url, **engine_arguments(url), poolclass=NullPool)
    tables = "SELECT 1 FROM sqlite_master"
    with engine.connect() as connection:
        if connection.exec_driver_sql(tables).first():
            return False
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        is_new = connection.exec_driver_sql(tables).first() is None  # another process may have been faster
        for statement in _statements() if is_new else ():
            connection.exec_driver_sql(statement)
        connection.commit()
    return is_new


@retry
def close_storage(storage: DriverStorage) -> None:
    """Close the database. SQLite's becomes a single file, which can also be read from a read-only folder."""
    engine = storage.database.engine
    storage.database.remove_session()
    if sqlite_file(engine.url):
        engine.dispose()  # the journal mode can only change without other connections
        with suppress(sqlalchemy.exc.OperationalError, DiskFull):  # a reader that is still connected reads the log too
            _drop_log(engine)
    engine.dispose()


def _drop_log(engine: Engine) -> None:
    """Turn the database into a single file; retry while it is read, since SQLite does not wait for readers."""
    for _ in range(READERS_S * 10):
        try:
            _journal(engine, "DELETE")
        except sqlalchemy.exc.OperationalError:
            time.sleep(0.1)
        else:
            return
    _journal(engine, "DELETE")


def _journal(engine: Engine, mode: str) -> None:
    """Set the journal mode. With WAL a commit is one synchronous write, and readers do not wait for it.

    SQLite's default ``synchronous=FULL`` is kept: commits survive a crash of the machine, not only of the process.
    """
    with engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA journal_mode={mode}")


def is_on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return True if ``path`` is on a network file system; False if the operating system does not tell."""
    if not mounts.exists():
        return False
    kinds = {}
    for line in mounts.read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        kinds[Path(point.replace("\\040", " "))] = kind
    path = path.resolve()
    nearest = next((kinds[folder] for folder in (path, *path.parents) if folder in kinds), "")
    return nearest.startswith(NETWORK_FILE_SYSTEMS)


# Deleting the studies of a search from a shared database.


def study_names(url: str, search: str) -> list[str]:
    """Return the names of the studies of ``search`` in the database at ``url``; empty if it has no tables.

    Raises:
        Failure: the database does not answer.
    """
    with _at_once(url) as storage:
        return [] if storage is None else _names(storage, search)


def delete_studies(url: str, search: str) -> None:
    """Delete the studies of ``search`` from the database at ``url``, one transaction each.

    Raises:
        Failure: the database does not answer; call it again to delete the rest.
    """
    with _at_once(url) as storage:
        if storage is not None:
            for name in _names(storage, search):
                optuna.delete_study(study_name=name, storage=storage)


def _names(storage: RDBStorage, search: str) -> list[str]:
    return [name for name in optuna.get_all_study_names(storage) if search_of(name) == search]


@contextmanager
def _at_once(url: str) -> Iterator[RDBStorage | None]:
    """Open the database without retries; None if nothing was ever stored."""
    if (file := sqlite_file(url)) and not file.is_file():
        yield None  # SQLite would create the file
        return
    try:
        storage = RDBStorage(url, engine_arguments(url), skip_compatibility_check=True, skip_table_creation=True)
        try:
            yield storage if sqlalchemy.inspect(storage.engine).has_table("studies") else None
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
        reason = without_password(str(getattr(error, "orig", None) or error).strip()).splitlines()[0]
        raise Failure(f"The database {url} does not answer ({reason}); start it and run the command again.") from error


# A copy in memory.


class StorageCopy(DriverStorage):
    """A copy of a database in memory; changes are not written. Studies named in ``without`` are hidden."""

    def __init__(self, engine: Engine, without: Collection[str] = ()) -> None:
        super().__init__(_Readable(engine))  # type: ignore[arg-type]  # the only part that is used
        self._without = without

    def load(self, name: str) -> bool:
        """Read the study ``name``; hidden ones do not exist before they are created."""
        return (name in self._study_name_to_id) if name in self._without else super().load(name)

    def _write(self, changes: tables.Changes) -> None:
        """Write nothing."""

    def _make(self, directions: Sequence[StudyDirection], name: str) -> int:
        return -1  # no row

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Set the attribute in memory only."""
        InMemoryStorage.set_study_user_attr(self, study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Set the attribute in memory only."""
        InMemoryStorage.set_study_system_attr(self, study_id, key, value)


class _Readable:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def remove_session(self) -> None:
        """Do nothing: there is no session."""
