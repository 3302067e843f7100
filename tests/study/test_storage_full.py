"""A database without free space is reported as such, for every error that libraries raise, and only then."""

import sqlite3

import optuna
import pytest
import sqlalchemy
from search.study.storage.open import close_storage, open_storage, watch_space
from support.small_disk import SmallDisk

from trainables.storage import DiskFull


def url_on(disk: SmallDisk) -> str:
    return f"sqlite:///{disk.path}/study.db"


def test_a_disk_that_fills_while_the_database_is_open(disk: SmallDisk) -> None:
    storage = open_storage(url_on(disk))
    disk.fill()
    with pytest.raises(DiskFull, match=r"There is no space left for .*/study\.db, where 0\.0 MB are free"):
        optuna.create_study(storage=storage, study_name="small")
    disk.clear()
    optuna.create_study(storage=storage, study_name="small")
    close_storage(storage)


def test_a_disk_that_is_full_already(disk: SmallDisk) -> None:
    close_storage(open_storage(url_on(disk)))
    disk.leave(0)
    with pytest.raises(DiskFull, match=r"no space left for .*/study\.db"):
        open_storage(url_on(disk))
    disk.clear()
    close_storage(open_storage(url_on(disk)))


def test_a_log_whose_index_finds_no_room(disk: SmallDisk) -> None:
    """SQLite gives no reason then, so the disk is checked."""
    storage = open_storage(url_on(disk))
    storage.database.engine.dispose()
    disk.leave(12_000)
    with pytest.raises(DiskFull, match=r"no space left for .*/study\.db") as full:
        optuna.create_study(storage=storage, study_name="small")
    assert isinstance(full.value.__cause__, sqlite3.OperationalError)
    assert full.value.__cause__.sqlite_errorcode == sqlite3.SQLITE_IOERR_SHMSIZE
    disk.clear()
    optuna.create_study(storage=storage, study_name="small")
    close_storage(storage)


def test_a_file_that_cannot_be_opened_where_there_is_room_is_no_full_disk(disk: SmallDisk) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{disk.path}/missing/study.db")
    watch_space(engine)
    with pytest.raises(sqlalchemy.exc.OperationalError, match="unable to open database file"):
        engine.connect()
