"""Reading studies that another process may be writing; nothing is made or changed."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import optuna
import sqlalchemy
from optuna.trial import FrozenTrial
from sqlalchemy import Engine

from search.study.storage import tables
from search.study.storage.retry import retry as asked_again
from search.study.tally import Tally
from trainables.files.whole import reading

WAIT_S = 60
"""For a lock, and for what a server that is gone owes us; then :func:`retry` asks again."""

CONNECT_S = 10

_LIBPQ = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": WAIT_S // 2,
    "keepalives_interval": WAIT_S // 6,
    "keepalives_count": 3,
    "tcp_user_timeout": WAIT_S * 1000,
    "options": f"-c lock_timeout={WAIT_S}s -c statement_timeout={5 * WAIT_S}s",
}
_MYSQL = {"connect_timeout": CONNECT_S, "read_timeout": 5 * WAIT_S, "write_timeout": WAIT_S}
BOUNDS: dict[str, dict[str, Any]] = {
    "postgresql": _LIBPQ,
    "postgresql+psycopg": _LIBPQ,
    "postgresql+psycopg2": _LIBPQ,
    "mysql+pymysql": _MYSQL,
    "mysql+mysqldb": _MYSQL,
}
"""The bounds of each driver of SQLAlchemy, in its own words; others have those of their libraries."""

optuna.logging.set_verbosity(optuna.logging.WARNING)


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _as_stored(read: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Ask a database again that is away for a moment; rows that cannot be understood are a mistake."""

    @asked_again
    @functools.wraps(read)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with reading("The database of the studies"):
            return read(*args, **kwargs)

    return call


def engine_arguments(url: str) -> dict[str, Any]:
    """How a database is connected to: SQLite waits for a lock, and a server's connections may have been cut.

    None is waited for without end, be it a server that accepts and says nothing, a machine that went without a word, or
    a row that somebody else has locked.
    """
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": WAIT_S}}
    return {"pool_pre_ping": True, "connect_args": BOUNDS.get(url.partition(":")[0], {})}


def read_storage(url: str) -> Engine:
    """The database at ``url``. SQLite's is let go after each look: who has it open keeps its log beside it."""
    arguments = engine_arguments(url)
    if url.startswith("sqlite"):
        arguments["poolclass"] = sqlalchemy.NullPool
    return sqlalchemy.create_engine(url, **arguments)


@_as_stored
def stored_trials(storage: Engine, name: str) -> list[FrozenTrial]:
    """The trials of the study ``name``; none where there is no such study."""
    with storage.connect() as connection:
        study = tables.read_study(connection, name)
        return tables.read_trials(connection, study.row_id) if study else []


@_as_stored
def stored_reports(storage: Engine, name: str) -> list[tuple[int, int, float]]:
    """Number, step and value of all that the trials of the study ``name`` reported, in the order in which they did."""
    with storage.connect() as connection:
        study = tables.read_study(connection, name)
        return tables.read_reports(connection, study.row_id) if study else []


@_as_stored
def stored_tally(storage: Engine, name: str) -> Tally:
    """How many trials of the study ``name`` are in which state, counted by the database; nothing is counted of none."""
    with storage.connect() as connection:
        study = tables.read_study(connection, name)
        return tables.count_trials(connection, study.row_id) if study else Tally()


@_as_stored
def stored_attributes(storage: Engine, name: str) -> dict[str, Any]:
    """The user attributes of the study ``name``; none where there is no such study."""
    with storage.connect() as connection:
        study = tables.read_study(connection, name)
        return study.user_attrs if study else {}
