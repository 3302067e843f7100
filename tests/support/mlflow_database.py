"""MLflow's new SQLite databases: the first is migrated, as for users, and later ones in this process are its copies."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine, create_engine

EMPTY = sqlite3.connect(":memory:", check_same_thread=False)


def copy_migrated() -> None:
    """Copy the tables of a new database instead of migrating it, which takes seconds; only once MLflow is imported."""
    if "mlflow" not in sys.modules:
        return
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401, which MLflow imports with the first database

    utils = sys.modules["mlflow.store.db.utils"]
    if hasattr(utils, "migrate"):
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


def write_migrated(path: Path) -> None:
    """Write an empty database of MLflow's, for a process that would otherwise migrate one."""
    import mlflow  # noqa: F401

    copy_migrated()
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.modules["mlflow.store.db.utils"]._initialize_tables(create_engine(f"sqlite:///{path}"))
