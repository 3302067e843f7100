"""Bounded waits for a database that accepts connections and never responds."""

import sqlite3
import time
from pathlib import Path

import pytest
import sqlalchemy
from search.study.storage.read import engine_arguments, read_storage
from support.stores import silent_server

from trainables.limits import Limits


def test_a_server_that_never_answers_is_given_up() -> None:
    limits = Limits(connect_s=2)  # the minimum of PostgreSQL's library
    begin = time.monotonic()
    with silent_server() as port:
        engine = read_storage(f"postgresql+psycopg://holdout@127.0.0.1:{port}/studies", limits)
        with pytest.raises(sqlalchemy.exc.OperationalError, match="timeout"):
            engine.connect()
    assert time.monotonic() - begin < 60


def test_a_lock_on_a_file_is_not_waited_for_without_end(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE kept (value)")
    holder.execute("BEGIN EXCLUSIVE")
    engine = read_storage(f"sqlite:///{path}", Limits(database_s=0.2))
    with pytest.raises(sqlalchemy.exc.OperationalError, match="locked"), engine.connect() as connection:
        connection.exec_driver_sql("SELECT * FROM kept")
    holder.close()
    engine.dispose()


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg", "mysql+pymysql"])
def test_every_server_has_a_bound_to_connect(driver: str) -> None:
    arguments = engine_arguments(f"{driver}://user@host/studies")
    assert arguments["pool_pre_ping"]
    assert arguments["connect_args"]["connect_timeout"] == Limits.connect_s
