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

from search.secrets import without_password
from search.study.budget import Tally
from search.study.storage import tables
from search.study.storage.driver import DriverStorage, database_in_words, retry
from trainables.errors import Failure
from trainables.files import reading
from trainables.limits import LIMITS, Limits

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
            reason = without_password(str(error.orig).strip().splitlines()[0])
            name = database_in_words(args[0])
            raise Failure(f"{name} does not answer ({reason}); start it and try again.") from error

    return answered


def engine_arguments(url: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Return the engine arguments for a database: SQLite waits for locks, and pooled connections are tested.

    Every wait is bounded: unresponsive server, dead host, locked row. Other drivers keep their defaults.
    """
    wait_s = limits.database_s
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": wait_s}}
    bounds: dict[str, Any] = {"connect_timeout": limits.connect_s}
    match url.partition(":")[0]:
        case "postgresql" | "postgresql+psycopg" | "postgresql+psycopg2":
            keepalives = {"keepalives_idle": int(wait_s / 2), "keepalives_interval": int(wait_s / 6)}
            options = f"-c lock_timeout={wait_s:g}s -c statement_timeout={5 * wait_s:g}s"
            bounds |= {**keepalives, "keepalives_count": 3, "tcp_user_timeout": int(wait_s * 1000), "options": options}
        case "mysql+pymysql" | "mysql+mysqldb":
            bounds |= {"read_timeout": int(5 * wait_s), "write_timeout": int(wait_s)}
        case _:
            bounds = {}
    return {"pool_pre_ping": True, "connect_args": bounds}


def read_storage(url: str, limits: Limits = LIMITS) -> Engine:
    """Return an engine for reading. SQLite's is closed after each query: an open one keeps its log file in place."""
    arguments = engine_arguments(url, limits)
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
