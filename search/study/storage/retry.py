"""Retries of storage calls while the database is temporarily unreachable, and errors that no retry removes."""

import functools
import logging
import re
import sqlite3
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError

from trainables.errors import InvalidInput
from trainables.storage import cause_of

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_PAUSES_S = (0.1, 0.5, 2, 5, 10, 20, 30)
_UNTIL_MADE_S = 0.5
"""After this pause, a driver that is starting has created its tables."""


def _is_outage(error: Exception) -> bool:
    from optuna.exceptions import StorageInternalError

    return isinstance(error, DBAPIError | StorageInternalError)


def database_in_words(given: object) -> str:
    """Return the name of the database in messages; ``given`` is its address, an engine or a storage."""
    engine = getattr(getattr(given, "database", given), "engine", given)
    address = getattr(engine, "url", engine)
    if not isinstance(address, str | URL):
        return "The database of the studies"
    address = make_url(address)
    is_file = address.get_backend_name() == "sqlite" and address.database
    return f"The database of the studies, {address.database if is_file else address},"


def _refuse_damaged(error: Exception, name: str, *, waited: bool) -> None:
    """Raise if ``error`` will not go away: the file is damaged or is not a database of studies.

    Raises:
        InvalidInput: restore the database.
    """
    cause = cause_of(error, DBAPIError)
    if cause is None:
        return
    if waited and re.search("no such (table|column)", str(cause.orig)):
        raise InvalidInput(
            f"{name} was not created by this version of Optuna ({cause.orig}); restore it from a copy, or name another "
            "one."
        ) from error
    # Its subclasses mean that the database is locked or is being created, or that a text in it is none.
    if type(cause.orig) is sqlite3.DatabaseError or "Could not decode to UTF-8" in str(cause.orig):
        raise InvalidInput(
            f"{name} is damaged or not a database ({cause.orig}); restore it from a copy, or search under a new name."
        ) from error


def retry(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Retry storage calls while the database is temporarily unreachable (restarted), for a minute in all."""

    @functools.wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        for pause in _PAUSES_S:
            try:
                return method(*args, **kwargs)
            except Exception as error:
                _refuse_damaged(error, database_in_words(args[0]), waited=pause > _UNTIL_MADE_S)
                if not _is_outage(error):
                    raise
                logger.warning("The storage does not answer (%s); retrying in %s s.", type(error).__name__, pause)
                time.sleep(pause)
        return method(*args, **kwargs)

    return call
