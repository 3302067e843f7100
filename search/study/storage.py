"""Optuna's storage: opened, asked again when it is away for a moment, and read."""

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import optuna
import sqlalchemy.exc
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial

logger = logging.getLogger(__name__)
optuna.logging.set_verbosity(optuna.logging.WARNING)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_PAUSES_S = (0.1, 0.5, 2, 5, 10, 20, 30)


def retry(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Call the storage again when it is away for a moment (a database restarted): a minute in all, then give up."""

    @functools.wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        for pause in _PAUSES_S:
            try:
                return method(*args, **kwargs)
            except (sqlalchemy.exc.DatabaseError, optuna.exceptions.StorageInternalError) as error:
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
