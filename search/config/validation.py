"""Validation errors as plain sentences, all of a file at once."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from search.secrets import without_password
from trainables.mistakes import Mistakes, raise_if_any, suggestion

# The entries of a file: what stands at a path of keys, and the file without it.

KeyPath = tuple[int | str, ...]
"""The keys, and in lists the indices, that lead to an entry."""


def existing(content: Any, path: KeyPath) -> KeyPath:
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


def holds(content: Any, path: KeyPath) -> bool:
    return existing(content, path) == path


def entry_at(content: Any, path: KeyPath) -> Any:
    for key in path:
        content = content[key]
    return content


def without(content: Any, path: KeyPath) -> Any:
    """``content`` without the entry at ``path``, nor a list that would be empty without it."""
    key, *rest = path
    if not _has(content, key):  # left out already, with what held it
        return content
    inner = without(content[key], tuple(rest)) if rest else None
    emptied = not rest or (isinstance(content[key], list) and not inner)
    if isinstance(content, list):
        assert isinstance(key, int)
        return [*content[:key], *([] if emptied else [inner]), *content[key + 1 :]]
    return {name: inner if name == key else value for name, value in content.items() if name != key or not emptied}


def dotted(path: KeyPath) -> str:
    """``path`` as people write it; what stands in a list is spoken of under the list's key."""
    return ".".join(str(key) for key in (path[:-1] if path and isinstance(path[-1], int) else path))


def leaves(content: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value of ``content`` that is no mapping and no list, with the keys that lead to it."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from leaves(value, (*path, key))
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from leaves(value, (*path, index))
    else:
        yield path, content


# Which entries of a file were wrong and left out, so that a default stands in their stead.


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """The entries that were left out. Nothing is known of what the file will say there once it is mended."""

    paths: tuple[KeyPath, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.paths)

    def replaced(self, key: str) -> bool:
        """Whether the entry ``key``, such as ``training.lr``, or a section that holds it was left out."""
        path = tuple(key.split("."))
        return any(path[: len(left_out)] == left_out for left_out in self.paths)

    def touched(self, key: str) -> bool:
        """Whether the entry ``key``, a section that holds it, or a part of it was left out."""
        path = tuple(key.split("."))
        return self.replaced(key) or any(left_out[: len(path)] == path for left_out in self.paths)


NOTHING = LeftOut()


# The keys that a file may have, as paths such as ``training.lr``, and which of them an unknown one may have meant.

SYNONYMS = {
    "architecture": "model.backbone",
    "bs": "training.batch_size",
    "data": "dataset",
    "dir": "dataset.root",
    "eval": "metrics",
    "evaluation": "metrics",
    "hyperparameters": "space",
    "loss": "losses",
    "learning_rate": "training.lr",
    "model.name": "model.backbone",
    "network": "model",
    "parallel": "search.max_concurrent",
    "params": "space",
    "path": "dataset.root",
}
"""What other programs call our keys."""


def key_paths(target: Any) -> tuple[str, ...]:
    """The keys of a section and, with a dot between, those of the sections in it."""
    return tuple(_key_paths(target))


def _key_paths(target: Any) -> Iterable[str]:
    for key, annotation in _fields(target).items():
        yield key
        yield from (f"{key}.{inner}" for inner in _key_paths(annotation))


def _fields(target: Any) -> Mapping[str, Any]:
    if fields := getattr(target, "model_fields", None):
        return {field.alias or name: field.annotation for name, field in fields.items()}
    return get_type_hints(target) if isinstance(target, type) and is_dataclass(target) else {}


def key_hint(path: str, known: Sequence[str]) -> str:
    """`` (did you mean …?)`` where a key like ``path`` is ``known``, in its section or in another one."""
    for name in (path, path.rpartition(".")[2]):
        if name in SYNONYMS:
            ends = (SYNONYMS[name], f".{SYNONYMS[name]}")
            path = next((key for key in known if key == ends[0] or key.endswith(ends[1])), path)
            break
    return suggestion(path, known)


# How a value that was refused is spoken of: pydantic's kinds of error in plain words.

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
    "too_long": "must have at most {max_length} entries",
    "string_too_short": "must not be empty",
}
"""Pydantic's kinds of error as this program says them."""


def _message(error: Any) -> str:
    if error["type"] in MESSAGES:
        text = MESSAGES[error["type"]].format(**error.get("ctx", {}))
        return re.sub(r"<[\w.]+: ('\w+')>", r"\1", text)  # how pydantic shows some of an enum's members
    text = str(error.get("ctx", {}).get("error") or error["msg"]).rstrip(".")
    return f"{text[0].lower()}{text[1:]}"


MOST = 2**63 - 1
"""What databases, NumPy and PyTorch hold as a whole number."""


def unusable(value: Any) -> str | None:
    """Why a value can stand for no key at all; None where it can."""
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if isinstance(value, int) and abs(value) > MOST:
        return f"must lie between -{MOST} and {MOST}"
    return None


def shown(value: Any) -> str:
    text = without_password(repr(value))
    return text if len(text) <= 80 else f"{text[:77]}…"


def said(errors: Sequence[Any]) -> str:
    """What ``errors`` of one entry say; there are several where an entry may have several forms."""
    return " or ".join(dict.fromkeys(_message(error) for error in errors))


# Everything that is wrong with a file or a section of it, in plain sentences, all of it at once.
#
# A wrong entry is left out and the rest is validated again until it passes, so that no mistake hides another one.

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


# The sentences of many checks, collected.

Result = TypeVar("Result")


class Findings:
    """What is wrong with a search; ``mistakes`` are known before, and ``left_out`` are the entries that they are about.

    A check that rests on such an entry is not made: a default stands there, and the file will say something else.
    """

    def __init__(self, mistakes: Sequence[str] = (), left_out: LeftOut = NOTHING) -> None:
        self.left_out = left_out
        self._sentences = dict.fromkeys(mistakes)  # a set that keeps its order

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is wrong, each once."""
        return tuple(self._sentences)

    def add(self, sentences: Iterable[str]) -> None:
        """Sentences that are true whatever was left out."""
        self._sentences |= dict.fromkeys(sentences)

    def check(self, find: Callable[[], Result], *keys: str) -> Result | None:
        """What ``find`` gives; None where it raises :class:`Mistakes`, or rests on ``keys`` that were left out."""
        if any(self.left_out.touched(key) for key in keys):
            return None
        try:
            return find()
        except Mistakes as error:
            self.add(error.sentences)
            return None

    def raise_if_any(self) -> None:
        """Raise :class:`Mistakes` where something is wrong."""
        raise_if_any(self.sentences)
