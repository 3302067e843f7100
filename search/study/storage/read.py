"""Read-only access to studies that another process may be writing."""

import copy
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
from search.study.storage.driver import DriverStorage, retry as asked_again
from trainables.files import reading

# Reading studies that another process may be writing; nothing is made or changed.

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


# Studies as they are stored, for who wants to work on them without changing them.


class StorageCopy(DriverStorage):
    """The studies of a database, read once; what is changed stays in memory. Those called ``without`` are not seen."""

    def __init__(self, engine: Engine, without: Collection[str] = ()) -> None:
        super().__init__(_Readable(engine))  # type: ignore[arg-type]  # all that is read of it
        self._without = without

    def load(self, name: str) -> bool:
        """As the driver's; a study that is left out is not there before it is made."""
        return (name in self._study_name_to_id) if name in self._without else super().load(name)

    def answer(self, name: str, number: int, ended: FrozenTrial) -> None:
        """Let trial ``number`` of the study ``name`` be as ``ended`` is."""
        trial_id = self.get_trial_id_from_study_id_trial_number(self._study_name_to_id[name], number)
        answered = copy.copy(ended)
        answered._trial_id, answered.number = trial_id, number
        self._set_trial(trial_id, answered)

    def _write(self, changes: tables.Changes) -> None:
        """Nothing is written."""

    def _make(self, directions: Sequence[StudyDirection], name: str) -> int:
        return -1  # no row

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """In memory alone."""
        InMemoryStorage.set_study_user_attr(self, study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """In memory alone."""
        InMemoryStorage.set_study_system_attr(self, study_id, key, value)


class _Readable:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def remove_session(self) -> None:
        """There is none."""
