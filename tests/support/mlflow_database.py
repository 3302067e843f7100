"""MLflow's new SQLite databases: the first is migrated, as for users, and later ones in this process are its copies."""

import sqlite3
import sys
from contextlib import closing

from sqlalchemy import Engine

EMPTY = sqlite3.connect(":memory:", check_same_thread=False)


def copy_migrated() -> None:
    """Copy the tables of a new database instead of migrating it, which takes seconds; only once MLflow is imported."""
    utils = sys.modules.get("mlflow.store.db.utils")
    if utils is None or hasattr(utils, "migrate"):
        return
    utils.migrate = utils._initialize_tables  # type: ignore[attr-defined]

    def initialize(engine: Engine) -> None:
        if engine.dialect.name != "sqlite":
            utils.migrate(engine)  # type: ignore[attr-defined]
            return
        with closing(engine.raw_connection()) as connection:
            if EMPTY.execute("SELECT 1 FROM sqlite_master").fetchone():
                EMPTY.backup(connection.driver_connection)
            else:
                utils.migrate(engine)  # type: ignore[attr-defined]
                connection.driver_connection.backup(EMPTY)

    for module in ("db.utils", "model_registry.sqlalchemy_store"):  # the second imported the name
        if found := sys.modules.get(f"mlflow.store.{module}"):
            found._initialize_tables = initialize  # type: ignore[attr-defined]
