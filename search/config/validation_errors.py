"""Everything that is wrong with a file or a section of it, in plain sentences, all of it at once.

A wrong entry is left out and the rest is validated again until it passes, so that no mistake hides another one.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from search.config.key_paths import key_hint, key_paths
from search.config.left_out import KeyPath, LeftOut
from search.config.secrets import without_password
from trainables.mistakes import Mistakes, raise_if_any, suggestion

Built = TypeVar("Built")
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


@dataclass(frozen=True, kw_only=True)
class Validation(Generic[Built]):
    """What a file says: its ``mistakes``, and what it builds when the wrong entries are ``left_out``, if anything."""

    built: Built | None
    mistakes: tuple[str, ...]
    left_out: LeftOut

    def result(self) -> Built:
        """What the file builds.

        Raises:
            Mistakes: all that is wrong with it.
        """
        raise_if_any(self.mistakes)
        assert self.built is not None
        return self.built


def validate(
    target: type[Built],
    content: Mapping[str, Any],
    *,
    keys: Sequence[str] | None = None,
    stand_ins: Mapping[str, Any] = MappingProxyType({}),
) -> Validation[Built]:
    """What ``content`` says of a ``target``.

    Args:
        target: a section, or a dataclass.
        content: its keys and values.
        keys: the keys that an unknown one may have meant, by default those of ``target``.
        stand_ins: what to put for a required key that is missing or wrong, so that something can be built.
    """
    return _Reader(target, content, key_paths(target) if keys is None else keys, stand_ins).read()


def build(target: type[Built], content: Mapping[str, Any], *, known: Collection[str], unknown: str) -> Built:
    """The ``target`` that ``content`` describes; keys that are not ``known`` are ``unknown``, as the sentence calls it.

    Raises:
        Mistakes: all that is wrong with it.
    """
    mistakes = [f"{key}: {unknown}{suggestion(str(key), known)}; remove it." for key in content if key not in known]
    validation = validate(target, {key: value for key, value in content.items() if key in known})
    raise_if_any([*mistakes, *validation.mistakes])
    return validation.result()


class _Reader(Generic[Built]):
    """Reads one file: in each round what is wrong in ``remaining`` becomes sentences and is left out."""

    def __init__(
        self, target: type[Built], content: Mapping[str, Any], keys: Sequence[str], stand_ins: Mapping[str, Any]
    ) -> None:
        self._adapter = TypeAdapter(target)
        self._content, self._keys, self._stand_ins = content, keys, stand_ins
        self._remaining: Any = dict(content)
        self._sentences: dict[str, None] = {}  # a set that keeps its order
        self._left_out: dict[KeyPath, None] = {}

    def read(self) -> Validation[Built]:
        while True:
            try:
                return self._validation(self._adapter.validate_json(_as_json(self._remaining), strict=True))
            except ValidationError as error:
                found = error.errors()
            before = self._remaining
            # Last entries of a list first, so that the indices of the others stay what they are.
            wrong = [path for entries in _by_entry(found, before) for path in self._mistakes_at(*entries)]
            for path in sorted(set(wrong), key=lambda path: [str(part).zfill(9) for part in path], reverse=True):
                self._remaining = _without(self._remaining, path)
            for key in self._stand_ins.keys() - self._remaining.keys():
                self._remaining[key] = self._stand_ins[key]
                self._left_out[(key,)] = None
            if self._remaining == before:
                return self._validation(None)

    def _validation(self, built: Built | None) -> Validation[Built]:
        return Validation(built=built, mistakes=tuple(self._sentences), left_out=LeftOut(paths=tuple(self._left_out)))

    def _mistakes_at(self, path: KeyPath, errors: Sequence[Any]) -> Iterator[KeyPath]:
        """The entries to leave out for ``errors``, which all concern the entry at ``path``; says what is wrong."""
        first = errors[0]
        if first["type"] == "missing":
            if not _holds(self._content, first["loc"]):  # else it was wrong, and is left out
                self._say(f"{_dotted(first['loc'])}: missing; this key is required.")
            yield from self._leave_out(first["loc"][:-1])
            return
        if first["type"] in UNKNOWN_KEY:
            self._say(self._unknown_key(path))
            yield path  # which puts nothing at its default
            return
        if isinstance(cause := first.get("ctx", {}).get("error"), Mistakes):
            for sentence in cause.sentences:
                if not self._rests_on_left_out(path, sentence):
                    self._say(_placed(path, sentence))
                yield from self._leave_out(_meant(path, sentence, self._remaining))
            return
        message = " or ".join(dict.fromkeys(_message(error) for error in errors))
        if not self._rests_on_left_out(path, message):
            self._say(f"{_dotted(path)}: {message}; it is {_shown(_entry(self._remaining, path))}.")
        yield from self._leave_out(path)

    def _say(self, sentence: str) -> None:
        self._sentences[sentence] = None

    def _leave_out(self, path: KeyPath) -> Iterator[KeyPath]:
        if path:
            self._left_out[path] = None
            yield path

    def _rests_on_left_out(self, path: KeyPath, sentence: str) -> bool:
        """Whether a section's ``sentence`` names a key of it that was left out: then it speaks of the default there."""
        below = {left_out[len(path)] for left_out in self._left_out if left_out[: len(path)] == path != left_out}
        return bool(below & set(re.findall(r"\w+", sentence)))

    def _unknown_key(self, path: KeyPath) -> str:
        value = _entry(self._remaining, path)
        while isinstance(value, Mapping) and len(value) == 1 and len(path) == 1:  # as --set makes it
            ((key, value),) = value.items()
            deeper = f"{_dotted(path)}.{key}"
            if any(known.endswith(f".{deeper}") for known in self._keys):
                path = (*path, key)
        hint = key_hint(_dotted(path), self._keys)
        kind = "section" if len(path) == 1 else "key"
        return f"{_dotted(path)}: no such {kind}{hint}; {'mend it, or ' if hint else ''}remove it."


def _by_entry(errors: Sequence[Any], content: Any) -> Iterator[tuple[KeyPath, list[Any]]]:
    """``errors`` by the entry of ``content`` that they concern: each way to read it may give one of its own."""
    for path, group in groupby(errors, key=lambda error: _existing(content, error["loc"])):
        same = list(group)
        for error in same:
            if error["type"] == "missing" or error["type"] in UNKNOWN_KEY:
                yield path, [error]
        if others := [error for error in same if error["type"] != "missing" and error["type"] not in UNKNOWN_KEY]:
            yield path, others


def _existing(content: Any, path: KeyPath) -> KeyPath:
    """As much of ``path`` as leads to something in ``content``: pydantic adds which of several forms it tried."""
    for length, key in enumerate(path):
        if not _has(content, key):
            return path[:length]
        content = content[key]
    return path


def _has(content: Any, key: int | str) -> bool:
    if isinstance(content, Mapping):
        return key in content
    return isinstance(content, list) and isinstance(key, int) and key < len(content)


def _holds(content: Any, path: KeyPath) -> bool:
    return _existing(content, path) == path


def _entry(content: Any, path: KeyPath) -> Any:
    for key in path:
        content = content[key]
    return content


def _without(content: Any, path: KeyPath) -> Any:
    """``content`` without the entry at ``path``, nor a list that would be empty without it."""
    key, *rest = path
    if not _has(content, key):  # left out already, with what held it
        return content
    inner = _without(content[key], tuple(rest)) if rest else None
    emptied = not rest or (isinstance(content[key], list) and not inner)
    if isinstance(content, list):
        assert isinstance(key, int)
        return [*content[:key], *([] if emptied else [inner]), *content[key + 1 :]]
    return {name: inner if name == key else value for name, value in content.items() if name != key or not emptied}


def _meant(path: KeyPath, sentence: str, content: Any) -> KeyPath:
    """The entry below ``path`` with whose key ``sentence`` begins, else ``path``."""
    start = re.match(r"[\w.]+", sentence)
    keys = start[0].rstrip(".").split(".") if start else []
    if path and keys and keys[0] == path[-1]:
        keys = keys[1:]
    inside = _existing(_entry(content, path), tuple(keys))
    return (*path, *inside)


def _dotted(path: KeyPath) -> str:
    """``path`` as people write it; what stands in a list is spoken of under the list's key."""
    return ".".join(str(key) for key in (path[:-1] if path and isinstance(path[-1], int) else path))


def _placed(path: KeyPath, sentence: str) -> str:
    """``sentence`` with its key before it, unless it begins with that."""
    dotted = _dotted(path)
    parent, _, last = dotted.rpartition(".")
    if dotted and sentence.startswith(f"{last}."):
        return f"{parent}.{sentence}" if parent else sentence
    return f"{dotted}: {sentence}" if dotted else sentence


MESSAGES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be finite",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be keys and values",
    "model_type": "must be keys and values",
    "dataclass_type": "must be keys and values",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have an entry at least",
    "string_too_short": "must not be empty",
}
"""Pydantic's kinds of error as this program says them."""


def _message(error: Any) -> str:
    if error["type"] in MESSAGES:
        return MESSAGES[error["type"]].format(**error.get("ctx", {}))
    text = str(error.get("ctx", {}).get("error") or error["msg"]).rstrip(".")
    return f"{text[0].lower()}{text[1:]}"


def _shown(value: Any) -> str:
    text = without_password(repr(value))
    return text if len(text) <= 80 else f"{text[:77]}…"


def _as_json(content: Mapping[str, Any]) -> str:
    """``content`` for pydantic's strict reading of JSON, which takes lists and mappings but guesses no types."""
    return json.dumps(content, default=str)
