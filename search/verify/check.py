"""What a check came to, and how two values are told apart."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

LONGEST = 160


class Check(NamedTuple):
    """``what`` was looked at, and the first sentence that says what is wrong with it, if any.

    ``is_there`` is false where there is nothing to look at yet.
    """

    what: str
    problem: str | None = None
    is_there: bool = True


def check(what: str, problems: Iterable[str]) -> Check:
    """``what`` with the first of ``problems``, which are not looked for beyond."""
    return Check(what, next(iter(problems), None))


def differing(what: str, stored: Any, recomputed: Any) -> Iterator[str]:
    """A sentence for each place at which two JSON values differ."""
    if isinstance(stored, Mapping) and isinstance(recomputed, Mapping):
        for key in dict.fromkeys((*stored, *recomputed)):
            yield from differing(f"{what} {key}", stored.get(key), recomputed.get(key))
    elif _is_list(stored) and _is_list(recomputed) and len(stored) == len(recomputed):
        for position, pair in enumerate(zip(stored, recomputed, strict=True)):
            yield from differing(f"{what} {position}", *pair)
    elif stored != recomputed:  # also lists that are not equally long
        yield f"{what}: {shown(stored)} is stored, and {shown(recomputed)} is recomputed."


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def shown(value: Any) -> str:
    """``value`` in a sentence."""
    text = "nothing" if value is None else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def as_json(value: Any) -> Any:
    """``value`` as a file would hold it: tuples are lists and keys are strings."""
    return json.loads(json.dumps(value))
