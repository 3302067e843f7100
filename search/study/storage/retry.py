"""A database that is away for a moment is asked again."""

import functools
import logging
import re
import sqlite3
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import optuna

from trainables.files.causes import cause_of
from trainables.mistakes import Mistakes

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_PAUSES_S = (0.1, 0.5, 2, 5, 10, 20, 30)
_UNTIL_MADE_S = 0.5
"""After such a pause a driver that has just begun has made its tables."""


def _is_outage(error: Exception) -> bool:
    import sqlalchemy  # half a second, for which only what opens a storage waits

    return isinstance(error, sqlalchemy.exc.DBAPIError | optuna.exceptions.StorageInternalError)


def _refuse_damaged(error: Exception, *, waited: bool) -> None:
    """Asking again mends no file that is no database.

    Raises:
        Mistakes: ``error`` says so.
    """
    import sqlalchemy

    cause = cause_of(error, sqlalchemy.exc.DBAPIError)
    if cause is None:
        return
    if waited and re.search("no such (table|column)", str(cause.orig)):
        raise Mistakes(
            f"The database of the studies is not one that this version of Optuna made ({cause.orig}); restore it from "
            "a copy, or name another one."
        ) from error
    # SQLite's other kinds, which derive from this one, are of a database that is locked or being made.
    if type(cause.orig) is sqlite3.DatabaseError:
        raise Mistakes(
            f"The database of the studies is damaged, or no database ({cause.orig}); restore it from a copy, or search "
            "under a new name."
        ) from error


def retry(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Call the storage again when it is away for a moment (a database restarted): a minute in all, then give up."""

    @functools.wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        for pause in _PAUSES_S:
            try:
                return method(*args, **kwargs)
            except Exception as error:
                _refuse_damaged(error, waited=pause > _UNTIL_MADE_S)
                if not _is_outage(error):
                    raise
                logger.warning("The storage does not answer (%s); asking again in %s s.", type(error).__name__, pause)
                time.sleep(pause)
        return method(*args, **kwargs)

    return call
