"""Read-only access to studies that another process may be writing."""

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, ParamSpec, TypeVar

import optuna
import sqlalchemy
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from sqlalchemy import Engine

from search.study.budget import Tally
from search.study.storage import tables
from search.study.storage.driver import DriverStorage, database_in_words, retry
from trainables.errors import Failure
from trainables.files import reading
from trainables.secrets import without_password

WAIT_S = 60
"""The wait for a lock or a response of a server, before :func:`retry` tries again."""

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
"""Timeouts by SQLAlchemy driver, as its connection arguments; other drivers keep their defaults."""

optuna.logging.set_verbosity(optuna.logging.WARNING)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _as_stored(read: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Retry while the database is temporarily unreachable, then raise a Failure; invalid rows are an InvalidInput."""

    @retry
    @functools.wraps(read)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with reading(database_in_words(args[0])):
            return read(*args, **kwargs)

    @functools.wraps(read)
    def answered(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return call(*args, **kwargs)
        except sqlalchemy.exc.DBAPIError as error:
            reason = without_password(str(error.orig).strip()).splitlines()[0]
            name = database_in_words(args[0])
            raise Failure(f"{name} does not answer ({reason}); start it and try again.") from error

    return answered


def engine_arguments(url: str) -> dict[str, Any]:
    """Return the engine arguments for a database: SQLite waits for locks, and pooled connections are tested.

    Every wait is bounded: unresponsive server, dead host, locked row.
    """
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": WAIT_S}}
    return {"pool_pre_ping": True, "connect_args": BOUNDS.get(url.partition(":")[0], {})}


def read_storage(url: str) -> Engine:
    """Return an engine for reading. SQLite's is closed after each query: an open one keeps its log file in place."""
    arguments = engine_arguments(url)
    if url.startswith("sqlite"):
        arguments["poolclass"] = sqlalchemy.NullPool
    return sqlalchemy.create_engine(url, **arguments)


@_as_stored
def stored_trials(storage: Engine, name: str) -> list[FrozenTrial]:
    """Return the trials of the study ``name``; empty if it does not exist."""
    with storage.connect() as connection:
        study = tables.read_study(connection, name)
        return tables.read_trials(connection, study.row_id) if study else []


@_as_stored
def stored_reports(storage: Engine, name: str) -> list[tuple[int, int, float]]:
    """Return (number, step, value) for all intermediate values of the study ``name``, in the order of the reports."""
    with storage.connect() as connection:
        study = tables.read_study(connection, name)
        return tables.read_reports(connection, study.row_id) if study else []


@_as_stored
def stored_tally(storage: Engine, name: str) -> Tally:
    """Return the counts of the study ``name``, computed by the database; all 0 if it does not exist."""
    with storage.connect() as connection:
        study = tables.read_study(connection, name)
        return tables.count_trials(connection, study.row_id) if study else Tally()


@_as_stored
def stored_attributes(storage: Engine, name: str) -> dict[str, Any]:
    """Return the user attributes of the study ``name``; empty if it does not exist."""
    with storage.connect() as connection:
        study = tables.read_study(connection, name)
        return study.user_attrs if study else {}


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
