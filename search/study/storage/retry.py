"""A database that is away for a moment is asked again."""

import functools
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import optuna

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_PAUSES_S = (0.1, 0.5, 2, 5, 10, 20, 30)


def _is_outage(error: Exception) -> bool:
    import sqlalchemy  # half a second, for which only what opens a storage waits

    return isinstance(error, sqlalchemy.exc.DBAPIError | optuna.exceptions.StorageInternalError)


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
