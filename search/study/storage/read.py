"""Read-only access to studies that another process may be writing; Optuna is imported with the first trial."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from search.study.storage import tables
from search.study.storage.retry import database_in_words, retry
from search.trials import Tally
from trainables.errors import Failure
from trainables.files import reading
from trainables.limits import LIMITS, Limits
from trainables.secrets import without_password

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

Result = TypeVar("Result")


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
        arguments["poolclass"] = NullPool
    return create_engine(url, **arguments)


def _stored(storage: Engine, name: str, read: Callable[[Connection, tables.StudyRow], Result]) -> Result | None:
    """Return what ``read`` returns of the study ``name``, as its database can be reached again; None without the study.

    Raises:
        Failure: the database does not answer.
        InvalidInput: its rows are invalid.
    """

    @retry
    def found(storage: Engine) -> Result | None:
        with reading(database_in_words(storage)), storage.connect() as connection:
            study = tables.read_study(connection, name)
            return read(connection, study) if study else None

    try:
        return found(storage)
    except DBAPIError as error:
        reason = without_password(str(error.orig).strip()).splitlines()[0]
        raise Failure(f"{database_in_words(storage)} does not answer ({reason}); start it and try again.") from error


def stored_trials(storage: Engine, name: str) -> "list[FrozenTrial]":
    """Return the trials of the study ``name``; empty if it does not exist."""
    return _stored(storage, name, lambda connection, study: tables.read_trials(connection, study.row_id)) or []


def stored_reports(storage: Engine, name: str) -> list[tuple[int, int, float]]:
    """Return (number, step, value) for all intermediate values of the study ``name``, in the order of the reports."""
    return _stored(storage, name, lambda connection, study: tables.read_reports(connection, study.row_id)) or []


def stored_tally(storage: Engine, name: str) -> Tally:
    """Return the counts of the study ``name``, computed by the database; all 0 if it does not exist."""
    return _stored(storage, name, lambda connection, study: tables.count_trials(connection, study.row_id)) or Tally()


def stored_attributes(storage: Engine, name: str) -> dict[str, Any]:
    """Return the user attributes of the study ``name``; empty if it does not exist."""
    return _stored(storage, name, lambda connection, study: study.user_attrs) or {}
