"""The outcome of a check, and the comparison of a stored record with the recomputed one."""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trainables.common.files import read_json
from trainables.common.storage import AnyPath

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


def differing(what: str, stored: Any, recomputed: Any, same: Callable[[Any, Any], bool] = operator.eq) -> Iterator[str]:
    """Yield a sentence for each place at which two records differ, with the path to it; ``same`` compares floats."""
    if isinstance(stored, Mapping) and isinstance(recomputed, Mapping):
        for key in dict.fromkeys((*stored, *recomputed)):
            pair = stored.get(key, ABSENT), recomputed.get(key, ABSENT)
            yield from differing(_at(what, key), *pair, same)
    elif _is_list(stored) and _is_list(recomputed) and len(stored) == len(recomputed):
        for position, pair in enumerate(zip(stored, recomputed, strict=True)):
            yield from differing(_at(what, position), *pair, same)
    elif not (same if isinstance(stored, float) and isinstance(recomputed, float) else operator.eq)(stored, recomputed):
        yield f"{what.rstrip()}: {_shown(stored)} is stored, {_shown(recomputed)} recomputed."


def _at(what: str, key: object) -> str:
    return f"{what}{key}" if what.endswith(" ") else f"{what}.{key}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _shown(value: Any) -> str:
    text = "nothing" if value is ABSENT else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def file_problems(path: AnyPath, recomputed: Any) -> Iterator[str]:
    """Compare the JSON file at ``path`` with its ``recomputed`` content."""
    stored = read_json(path) if path.is_file() else ABSENT
    yield from differing(f"{path} ", stored, json.loads(json.dumps(recomputed)))
