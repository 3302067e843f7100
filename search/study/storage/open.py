"""Opening the database of a search for the driver that writes it."""

import time
from contextlib import suppress
from pathlib import Path

import sqlalchemy
from optuna.storages import RDBStorage
from sqlalchemy import Engine

from search.study.storage.driver import DriverStorage
from search.study.storage.full import full_database_said, sqlite_file, watch_space
from search.study.storage.read import engine_arguments
from search.study.storage.retry import retry
from trainables.files.disk_full import DiskFull

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
