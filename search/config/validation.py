"""Validation of a file or section by pydantic, with every mistake of it in one plain sentence each."""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import FunctionType, MappingProxyType
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from trainables.data.dataset import is_utf8
from trainables.errors import InvalidInput, raise_if_any, shortened, suggestion
from trainables.ranges import as_python
from trainables.secrets import without_password

Built = TypeVar("Built")
Result = TypeVar("Result")
KeyPath = tuple[int | str, ...]
"""The keys, and in lists the indices, that lead to an entry."""


class ConfigSection(BaseModel):
    """Base of all sections: frozen, without type conversions, unknown keys refused.

    The docstring below a field describes its key, in :mod:`search.config.keys`' form.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# The result of a validation.


class Findings:
    """All mistakes of a file: those of its form, then those of further checks, which :meth:`check` adds.

    ``left_out`` are the wrong entries that were left out, so that the rest could be validated with defaults there. A
    check that depends on one of them is skipped: it would judge a default that the corrected file will not have.
    """

    def __init__(self) -> None:
        self.left_out: dict[KeyPath, None] = {}  # ordered sets
        self._sentences: dict[str, None] = {}

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentences)

    def replaced(self, key: str) -> bool:
        """Return True if the entry ``key``, such as ``training.lr``, or a section that holds it was left out."""
        path = tuple(key.split("."))
        return any(path[: len(left_out)] == left_out for left_out in self.left_out)

    def touched(self, key: str) -> bool:
        """Return True if the entry ``key``, a section that holds it, or a part of it was left out."""
        path = tuple(key.split("."))
        return self.replaced(key) or any(left_out[: len(path)] == path for left_out in self.left_out)

    def say(self, sentence: str) -> None:
        """Add a mistake."""
        self._sentences[sentence] = None

    def add(self, sentences: Iterable[str], *keys: str) -> None:
        """Add mistakes, unless one of the ``keys`` that they depend on was left out."""
        self.check(lambda: raise_if_any(list(sentences)), *keys)

    def check(self, find: Callable[[], Result], *keys: str) -> Result | None:
        """Return the result of ``find``; None if it raises :class:`InvalidInput` or one of ``keys`` was left out."""
        if any(map(self.touched, keys)):
            return None
        try:
            return find()
        except InvalidInput as error:
            self._sentences |= dict.fromkeys(error.sentences)
            return None

    def raise_if_any(self) -> None:
        raise_if_any(self.sentences)


class ValidatedFile(Findings, Generic[Built]):
    """The mistakes of a file, and the object ``built`` from it without the wrong entries, if they make one."""

    built: Built | None = None
    content: Any = None

    def gives(self, key: str) -> bool:
        """Return True if the file has the entry ``key``, right or wrong."""
        return _holds(self.content, tuple(key.split(".")))

    def result(self) -> Built:
        """Return the object that the file describes; raise :class:`InvalidInput` if a mistake was found."""
        self.raise_if_any()
        assert self.built is not None
        return self.built


# Validation.


def validate(
    target: type[Built],
    content: Mapping[str, Any],
    *,
    keys: Sequence[str] | None = None,
    stand_ins: Mapping[str, Any] = MappingProxyType({}),
) -> ValidatedFile[Built]:
    """Validate ``content`` as a ``target`` and collect all mistakes.

    Args:
        target: a section, or a dataclass.
        content: its keys and values.
        keys: the keys to suggest for an unknown one; by default those of ``target``.
        stand_ins: values for required keys that are missing or wrong, so that an object can always be built.
    """
    return _Reader(target, content, key_paths(target) if keys is None else keys, stand_ins).read()


UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
"""Pydantic's error types for an unknown key of a model and of a dataclass."""


class _Reader(Generic[Built]):
    """Validation of one file in rounds: each round reports the wrong entries and leaves them out of the next.

    Thus no mistake hides another one: pydantic does not run a section's own validators while an entry of it is wrong.
    """

    def __init__(
        self, target: type[Built], content: Mapping[str, Any], keys: Sequence[str], stand_ins: Mapping[str, Any]
    ) -> None:
        self._adapter = TypeAdapter(target)
        self._keys, self._stand_ins = keys, stand_ins
        self._content: Any = plain(content)
        self._remaining: Any = self._content
        self._found = ValidatedFile[Built]()
        self._found.content = self._content

    def read(self) -> ValidatedFile[Built]:
        self._drop([path for path, value in _leaves(self._content) for path in self._if_unusable(path, value)])
        while True:
            try:
                # From JSON, pydantic's strict mode accepts lists as tuples but converts no types.
                self._found.built = self._adapter.validate_json(json.dumps(self._remaining), strict=True)
                return self._found
            except ValidationError as error:
                errors = error.errors()
            before = self._remaining
            self._drop([path for entries in _by_entry(errors, before) for path in self._report(*entries)])
            for key in self._stand_ins.keys() - self._remaining.keys():
                self._remaining = {**self._remaining, key: self._stand_ins[key]}
                self._found.left_out[(key,)] = None
            if self._remaining == before:
                return self._found

    def _drop(self, wrong: Sequence[KeyPath]) -> None:
        # From the end of each list, so that the other indices stay valid.
        for path in sorted(set(wrong), key=lambda path: [str(part).zfill(9) for part in path], reverse=True):
            self._remaining = _without(self._remaining, path)

    def _if_unusable(self, path: KeyPath, value: Any) -> Iterator[KeyPath]:
        if why := _unusable(value):
            self._found.say(f"{_dotted(path)}: {why}; it is {_shown(value)}.")
            yield from self._leave_out(path)

    def _report(self, path: KeyPath, errors: Sequence[Any]) -> Iterator[KeyPath]:
        """Report ``errors``, all about the entry at ``path``, and yield the entries to drop."""
        first = errors[0]
        if first["type"] == "missing":
            if not _holds(self._content, first["loc"]):  # otherwise it was wrong and has been left out
                self._found.say(f"{_dotted(first['loc'])}: missing; this key is required.")
            yield from self._leave_out(first["loc"][:-1])
            return
        if first["type"] in UNKNOWN_KEY:
            self._found.say(self._unknown_key(path))
            yield path  # not in left_out: no default replaces it
            return
        if isinstance(cause := first.get("ctx", {}).get("error"), InvalidInput):
            for sentence in cause.sentences:
                if not self._is_about_left_out(path, sentence):
                    self._found.say(_placed(path, sentence))
                yield from self._leave_out(_subject(path, sentence, self._remaining))
            return
        if first["type"] == "too_short" and _entry_at(self._remaining, path):
            return  # pydantic does not count invalid entries, which it reports too
        message = " or ".join(dict.fromkeys(_message(error) for error in errors))  # several for a union
        if not self._is_about_left_out(path, message):
            value = _entry_at(self._remaining, path)
            expected = " ".join(str(error.get("ctx", {}).get("expected", "")) for error in errors)  # of a Literal
            hint = suggestion(value, re.findall(r"'(\w+)'", expected)) if isinstance(value, str) else ""
            self._found.say(f"{_dotted(path)}: {message}; it is {_shown(value)}{hint}.")
        yield from self._leave_out(path)

    def _leave_out(self, path: KeyPath) -> Iterator[KeyPath]:
        if path:
            self._found.left_out[path] = None
            yield path

    def _is_about_left_out(self, path: KeyPath, sentence: str) -> bool:
        """Return True if a section's ``sentence`` names a key that was left out, and so judges a default."""
        below = {left_out[len(path)] for left_out in self._found.left_out if left_out[: len(path)] == path != left_out}
        if (start := re.match(r"\w+(\.\w+)+", sentence)) and _holds(self._remaining, tuple(start[0].split("."))):
            sentence = sentence[start.end() :]  # the subject itself was not left out
        return bool(below & set(re.findall(r"\w+", sentence)))

    def _unknown_key(self, path: KeyPath) -> str:
        value = _entry_at(self._remaining, path)
        if isinstance(value, Mapping) and len(value) == 1:  # as --set creates it
            deeper = (*path, *value)
            if any(known.endswith(f".{_dotted(deeper)}") for known in self._keys):
                path = deeper
        if path == ("search", "objectives"):
            return (
                f"{_dotted(path)}: a search has one objective; it is {_shown(value)}: name one metric in "
                'search.objective, and bound the others in search.constraints, such as {embed_ms: "< 5"}.'
            )
        hint = _key_hint(_dotted(path), self._keys)
        kind = "section" if len(path) == 1 else "key"
        return f"{_dotted(path)}: no such {kind}{hint}; {'correct it, or ' if hint else ''}remove it."


DEEPEST = 100
"""The most levels of lists and mappings in one another."""


def plain(value: Any, path: KeyPath = ()) -> Any:
    """Return a ``value`` that Python code gave as the values of YAML and JSON, with the same meaning.

    Raises:
        InvalidInput: it has none there; the sentence begins with its ``path``.
    """
    if len(path) > DEEPEST:
        raise InvalidInput(f"{path[0]}: nested more than {DEEPEST} levels deep, or contains itself; correct it.")
    if isinstance(value, type | FunctionType):  # a part of the user's own
        value = f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, str) and value.startswith("__main__:"):
        raise InvalidInput(
            f"{_dotted(path)}: {value!r} is in the script or notebook itself, which other processes cannot import; "
            "move it to a module (in a notebook, a cell beginning with %%writefile mylab.py), and import it from there."
        )
    if isinstance(value, str) and not is_utf8(value):
        raise InvalidInput(f"{_dotted(path)}: {value!r} is no text in UTF-8; rename what has this name.")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        return {str(plain(key, path)): plain(entry, (*path, str(key))) for key, entry in value.items()}
    if isinstance(value, Enum):
        return plain(value.value, path)
    if isinstance(value, os.PathLike):
        return plain(os.fspath(value), path)
    if (number := as_python(value)) is not value:
        return number
    if isinstance(value, list | tuple | range) or (hasattr(value, "tolist") and getattr(value, "shape", None) != ()):
        return [plain(entry, (*path, place)) for place, entry in enumerate(value)]
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise InvalidInput(
        f"{_dotted(path)}: must be text, a number, true, false, or a list or mapping of these; it is {_shown(value)} "
        f"({type(value).__name__}); convert it."
    )


def _by_entry(errors: Sequence[Any], content: Any) -> Iterator[tuple[KeyPath, list[Any]]]:
    """Yield the ``errors`` of each entry of ``content``: each member of a union may report one."""
    groups: dict[tuple[KeyPath, KeyPath], list[Any]] = {}
    for error in errors:
        own = error["loc"] if error["type"] == "missing" or error["type"] in UNKNOWN_KEY else ()
        groups.setdefault((_existing(content, error["loc"]), own), []).append(error)
    for (path, _), group in groups.items():
        yield path, group


def _subject(path: KeyPath, sentence: str, content: Any) -> KeyPath:
    """Return the path of the entry below ``path`` whose key ``sentence`` begins with, else ``path``."""
    start = re.match(r"[\w.]+", sentence)
    keys = start[0].rstrip(".").split(".") if start else []
    if path and keys and keys[0] == path[-1]:
        keys = keys[1:]
    return (*path, *_existing(_entry_at(content, path), tuple(keys)))


def _placed(path: KeyPath, sentence: str) -> str:
    """Return ``sentence`` preceded by its key, unless it begins with that."""
    key = _dotted(path)
    section, _, last = key.rpartition(".")
    if key and sentence.startswith(f"{last}."):
        return f"{section}.{sentence}" if section else sentence
    return f"{key}: {sentence}" if key else sentence


# Pydantic's errors in plain words.

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
    "too_short": "must have at least one entry",
    "too_long": "must have at most {max_length} entries",
    "string_too_short": "must not be empty",
}
"""The message for each of pydantic's error types."""

MOST = 2**63 - 1
"""The largest whole number that databases, NumPy and PyTorch hold."""


def _message(error: Any) -> str:
    if error["type"] in MESSAGES:
        text = MESSAGES[error["type"]].format(**error.get("ctx", {}))
        return re.sub(r"<[\w.]+: ('\w+')>", r"\1", text)  # pydantic shows some enum members as <Stage.TEST: 'test'>
    text = str(error.get("ctx", {}).get("error") or error["msg"]).rstrip(".")
    return f"{text[0].lower()}{text[1:]}"


def _unusable(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if isinstance(value, int) and abs(value) > MOST:
        return f"must be between -{MOST} and {MOST}"
    return None


def _shown(value: Any) -> str:
    return shortened(without_password(repr(value)))


# Known keys, and suggestions for unknown ones.

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
"""Other programs' names for our keys."""


def key_paths(target: Any) -> tuple[str, ...]:
    """Return the keys of a section and of the sections in it, such as ``training`` and ``training.lr``."""
    paths: list[str] = []
    for key, annotation in fields_of(target).items():
        paths += [key, *(f"{key}.{inner}" for inner in key_paths(annotation))]
    return tuple(paths)


def fields_of(target: Any) -> Mapping[str, Any]:
    """Return the types of a section's keys; empty for anything but a section."""
    fields = getattr(target, "model_fields", None) or getattr(target, "__dataclass_fields__", {})
    hints = get_type_hints(target, include_extras=True) if fields else {}
    return {name: hints[name] for name in fields}


def _key_hint(path: str, known: Sequence[str]) -> str:
    """Return `` (did you mean …?)`` if a key like ``path`` is ``known``, in its section or in another one."""
    for name in (path, path.rpartition(".")[2]):
        if name in SYNONYMS:
            ends = (SYNONYMS[name], f".{SYNONYMS[name]}")
            path = next((key for key in known if key == ends[0] or key.endswith(ends[1])), path)
            break
    return suggestion(path, known)


# Entries of nested mappings and lists, by path.


def _existing(content: Any, path: KeyPath) -> KeyPath:
    """Return the longest prefix of ``path`` that exists in ``content``; pydantic appends the union member it tried."""
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


def _entry_at(content: Any, path: KeyPath) -> Any:
    for key in path:
        content = content[key]
    return content


def _without(content: Any, path: KeyPath) -> Any:
    """Return ``content`` without the entry at ``path``, and without lists that this would empty."""
    key, *rest = path
    if not _has(content, key):  # removed already, with its section
        return content
    inner = _without(content[key], tuple(rest)) if rest else None
    emptied = not rest or (isinstance(content[key], list) and not inner)
    if isinstance(content, list):
        assert isinstance(key, int)
        return [*content[:key], *([] if emptied else [inner]), *content[key + 1 :]]
    return {name: inner if name == key else value for name, value in content.items() if name != key or not emptied}


def _dotted(path: KeyPath) -> str:
    """Return ``path`` with dots; an entry of a list is named by the key of the list."""
    return ".".join(str(key) for key in (path[:-1] if path and isinstance(path[-1], int) else path))


def _leaves(content: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every value that is neither a mapping nor a list, with its path."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from _leaves(value, (*path, index))
    else:
        yield path, content
