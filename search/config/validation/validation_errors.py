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

from search.config.validation.entries import KeyPath, dotted, entry_at, existing, holds, leaves, without
from search.config.validation.key_paths import key_hint, key_paths
from search.config.validation.left_out import LeftOut
from search.config.validation.messages import said, shown, unusable
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
        self._keys, self._stand_ins = keys, stand_ins
        self._content: Any = json.loads(_as_json(content))  # with the keys that pydantic names
        self._remaining: Any = self._content
        self._sentences: dict[str, None] = {}  # a set that keeps its order
        self._left_out: dict[KeyPath, None] = {}

    def read(self) -> Validation[Built]:
        self._drop([path for path, value in leaves(self._content) for path in self._if_unusable(path, value)])
        while True:
            try:
                return self._validation(self._adapter.validate_json(_as_json(self._remaining), strict=True))
            except ValidationError as error:
                found = error.errors()
            before = self._remaining
            self._drop([path for entries in _by_entry(found, before) for path in self._mistakes_at(*entries)])
            for key in self._stand_ins.keys() - self._remaining.keys():
                self._remaining = {**self._remaining, key: self._stand_ins[key]}
                self._left_out[(key,)] = None
            if self._remaining == before:
                return self._validation(None)

    def _drop(self, wrong: Sequence[KeyPath]) -> None:
        # Last entries of a list first, so that the indices of the others stay what they are.
        for path in sorted(set(wrong), key=lambda path: [str(part).zfill(9) for part in path], reverse=True):
            self._remaining = without(self._remaining, path)

    def _if_unusable(self, path: KeyPath, value: Any) -> Iterator[KeyPath]:
        if why := unusable(value):
            self._say(f"{dotted(path)}: {why}; it is {shown(value)}.")
            yield from self._leave_out(path)

    def _validation(self, built: Built | None) -> Validation[Built]:
        return Validation(built=built, mistakes=tuple(self._sentences), left_out=LeftOut(paths=tuple(self._left_out)))

    def _mistakes_at(self, path: KeyPath, errors: Sequence[Any]) -> Iterator[KeyPath]:
        """The entries to leave out for ``errors``, which all concern the entry at ``path``; says what is wrong."""
        first = errors[0]
        if first["type"] == "missing":
            if not holds(self._content, first["loc"]):  # else it was wrong, and is left out
                self._say(f"{dotted(first['loc'])}: missing; this key is required.")
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
        if first["type"] == "too_short" and entry_at(self._remaining, path):
            return  # pydantic does not count entries that are wrong, and says what is wrong with them
        message = said(errors)
        if not self._rests_on_left_out(path, message):
            self._say(f"{dotted(path)}: {message}; it is {shown(entry_at(self._remaining, path))}.")
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
        if (start := re.match(r"\w+(\.\w+)+", sentence)) and holds(self._remaining, tuple(start[0].split("."))):
            sentence = sentence[start.end() :]  # what it is said of is there
        return bool(below & set(re.findall(r"\w+", sentence)))

    def _unknown_key(self, path: KeyPath) -> str:
        value = entry_at(self._remaining, path)
        if isinstance(value, Mapping) and len(value) == 1:  # as --set makes it
            deeper = (*path, *value)
            if any(known.endswith(f".{dotted(deeper)}") for known in self._keys):
                path = deeper
        hint = key_hint(dotted(path), self._keys)
        kind = "section" if len(path) == 1 else "key"
        return f"{dotted(path)}: no such {kind}{hint}; {'mend it, or ' if hint else ''}remove it."


def _by_entry(errors: Sequence[Any], content: Any) -> Iterator[tuple[KeyPath, list[Any]]]:
    """``errors`` by the entry of ``content`` that they concern: each way to read it may give one of its own."""
    for path, group in groupby(errors, key=lambda error: existing(content, error["loc"])):
        same = list(group)
        for error in same:
            if error["type"] == "missing" or error["type"] in UNKNOWN_KEY:
                yield path, [error]
        if others := [error for error in same if error["type"] != "missing" and error["type"] not in UNKNOWN_KEY]:
            yield path, others


def _meant(path: KeyPath, sentence: str, content: Any) -> KeyPath:
    """The entry below ``path`` with whose key ``sentence`` begins, else ``path``."""
    start = re.match(r"[\w.]+", sentence)
    keys = start[0].rstrip(".").split(".") if start else []
    if path and keys and keys[0] == path[-1]:
        keys = keys[1:]
    inside = existing(entry_at(content, path), tuple(keys))
    return (*path, *inside)


def _placed(path: KeyPath, sentence: str) -> str:
    """``sentence`` with its key before it, unless it begins with that."""
    key = dotted(path)
    section, _, last = key.rpartition(".")
    if key and sentence.startswith(f"{last}."):
        return f"{section}.{sentence}" if section else sentence
    return f"{key}: {sentence}" if key else sentence


def _as_json(content: Mapping[str, Any]) -> str:
    """``content`` for pydantic's strict reading of JSON, which takes lists and mappings but guesses no types."""
    return json.dumps(content, default=str)
