"""The outcome of a check, and the comparison of a stored record with the recomputed one."""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trainables.files import read_json
from trainables.storage import AnyPath

LONGEST = 160
"""Most characters of a value in a sentence."""

ABSENT = object()
"""A value that a record does not have."""


class Check(NamedTuple):
    """The outcome of checking ``what``: the first problem, or None.

    ``is_there`` is False if there is nothing to check yet.
    """

    what: str
    problem: str | None = None
    is_there: bool = True


def check(what: str, problems: Iterable[str]) -> Check:
    """Return the check of ``what`` with the first of ``problems``; do not compute the others."""
    return Check(what, next(iter(problems), None))


def differing(
    what: str, stored: Any, recomputed: Any, same: Callable[[float, float], bool] = operator.eq, at: str = ""
) -> Iterator[str]:
    """Yield a sentence for each place at which two records differ.

    Args:
        what: the name of the record.
        stored: the stored record, of JSON types.
        recomputed: the recomputed one.
        same: compares two floats.
        at: the path to both in the record.
    """
    if isinstance(stored, Mapping) and isinstance(recomputed, Mapping):
        for key in dict.fromkeys((*stored, *recomputed)):
            pair = stored.get(key, ABSENT), recomputed.get(key, ABSENT)
            yield from differing(what, *pair, same, f"{at}.{key}".lstrip("."))
    elif _is_list(stored) and _is_list(recomputed) and len(stored) == len(recomputed):
        for position, pair in enumerate(zip(stored, recomputed, strict=True)):
            yield from differing(what, *pair, same, f"{at}.{position}".lstrip("."))
    elif isinstance(stored, float) and isinstance(recomputed, float) and same(stored, recomputed):
        return
    elif stored != recomputed:  # including lists of different lengths
        yield f"{what} {at}".rstrip() + f": {_shown(stored)} is stored, {_shown(recomputed)} recomputed."


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _shown(value: Any) -> str:
    text = "nothing" if value is ABSENT else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def file_problems(path: AnyPath, recomputed: Any) -> Iterator[str]:
    """Compare the JSON file at ``path`` with its ``recomputed`` content."""
    stored = read_json(path) if path.is_file() else ABSENT
    yield from differing(path.name, stored, json.loads(json.dumps(recomputed)))
