"""Optuna's storage: opened, asked again when it is away for a moment, and read."""

import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial

from search.failure import Failure
from search.study.names import search_of

logger = logging.getLogger(__name__)
optuna.logging.set_verbosity(optuna.logging.WARNING)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_PAUSES_S = (0.1, 0.5, 2, 5, 10, 20, 30)


def _is_outage(error: Exception) -> bool:
    import sqlalchemy  # half a second, for which only what opens a storage waits

    return isinstance(error, sqlalchemy.exc.DatabaseError | optuna.exceptions.StorageInternalError)


def retry(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Call the storage again when it is away for a moment (a database restarted): a minute in all, then give up."""

    @functools.wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        for pause in _PAUSES_S:
            try:
                return method(*args, **kwargs)
            except Exception as error:
                if not _is_outage(error):
                    raise
                logger.warning("The storage does not answer (%s); asking again in %s s.", type(error).__name__, pause)
                time.sleep(pause)
        return method(*args, **kwargs)

    return call


@retry  # two processes that make the tables at once are in each other's way for a moment
def open_storage(url: str) -> RDBStorage:
    """The database at ``url``, made where it does not exist."""
    sqlite = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    return RDBStorage(url, engine_kwargs=sqlite)


@retry
def stored_trials(storage: RDBStorage, name: str) -> list[FrozenTrial]:
    """The trials of the study ``name``; none where there is no such study."""
    try:
        return optuna.load_study(study_name=name, storage=storage).get_trials(deepcopy=False)
    except KeyError:
        return []


@retry
def stored_attributes(storage: RDBStorage, name: str) -> dict[str, Any]:
    """The user attributes of the study ``name``; none where there is no such study."""
    try:
        return dict(optuna.load_study(study_name=name, storage=storage).user_attrs)
    except KeyError:
        return {}


@retry
def read_storage(url: str) -> RDBStorage:
    """The database at ``url``, which another process may be writing; nothing is made or changed there."""
    sqlite = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    return RDBStorage(url, engine_kwargs=sqlite, skip_compatibility_check=True, skip_table_creation=True)


def study_names(url: str, search: str) -> list[str]:
    """The studies of ``search`` in the database at ``url``; none where it has no table yet.

    Raises:
        Failure: the database does not answer.
    """
    with _at_once(url) as storage:
        return [] if storage is None else _names(storage, search)


def delete_studies(url: str, search: str) -> None:
    """Delete the studies of ``search`` from the database at ``url``, each in a transaction of its own.

    Raises:
        Failure: the database does not answer; what is deleted is deleted, and doing it again deletes the rest.
    """
    with _at_once(url) as storage:
        if storage is not None:
            for name in _names(storage, search):
                optuna.delete_study(study_name=name, storage=storage)


def _names(storage: RDBStorage, search: str) -> list[str]:
    return [name for name in optuna.get_all_study_names(storage) if search_of(name) == search]


@contextmanager
def _at_once(url: str) -> Iterator[RDBStorage | None]:
    """The database without waiting for it: None where nothing was ever stored."""
    import sqlalchemy

    address = sqlalchemy.make_url(url)
    if address.get_backend_name() == "sqlite" and not Path(address.database or "").is_file():
        yield None  # SQLite would make the file
        return
    try:
        storage = read_storage.__wrapped__(url)  # type: ignore[attr-defined]  # of functools.wraps
        try:
            yield storage if sqlalchemy.inspect(storage.engine).has_table("studies") else None
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        shown = address.render_as_string(hide_password=True)
        raise Failure(
            f"The database {shown} does not answer ({reason}); start it and give the command again."
        ) from error
