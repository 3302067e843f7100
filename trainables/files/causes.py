"""What an exception was raised from: libraries wrap the one that tells what happened."""

from collections.abc import Iterator
from typing import TypeVar

Kind = TypeVar("Kind", bound=BaseException)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """``error``, then the exception that it was raised from or while handling, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def cause_of(error: BaseException, kind: type[Kind]) -> Kind | None:
    """The first of the :func:`causes` that is a ``kind``; None where none is."""
    return next((cause for cause in causes(error) if isinstance(cause, kind)), None)
