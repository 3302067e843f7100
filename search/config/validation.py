"""Validation of a file or section by pydantic, with every mistake of it in one plain sentence each."""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import reduce
from operator import getitem
from types import FunctionType, MappingProxyType
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from trainables.common.errors import InvalidInput, Mistake, raise_if_any, shortened, suggestion, without_password
from trainables.common.ranges import as_python
from trainables.data.dataset import is_utf8

Built = TypeVar("Built")
Result = TypeVar("Result")
KeyPath = tuple[int | str, ...]
"""The keys, and in lists the indices, that lead to an entry."""


class ConfigSection(BaseModel):
    """Base of all sections: frozen, no conversions, no unknown keys; a docstring below a field describes its key."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Findings(Generic[Built]):
    """All mistakes of a file: those of its form, then those that :meth:`check` adds.

    ``built`` is made from its ``content`` without the wrong entries ``left_out``, with defaults there. A mistake that
    depends on one of them is not added: the corrected file may not have it.
    """

    def __init__(self, content: Any = None) -> None:
        self.content = content
        self.built: Built | None = None
        self.left_out: dict[KeyPath, None] = {}  # ordered sets
        self._sentences: dict[str, None] = {}

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentences)

    def gives(self, key: str) -> bool:
        """Return True if the file has the entry ``key``, right or wrong."""
        return holds(self.content, key)

    def replaced(self, key: str) -> bool:
        """Return True if the entry ``key``, such as ``training.lr``, or a section that holds it was left out."""
        path = tuple(key.split("."))
        return any(path[: len(left_out)] == left_out for left_out in self.left_out)

    def touched(self, key: str) -> bool:
        """Return True if the entry ``key``, a section that holds it, or a part of it was left out."""
        path = tuple(key.split("."))
        return self.replaced(key) or any(left_out[: len(path)] == path for left_out in self.left_out)

    def say(self, sentence: str) -> None:
        self._sentences[sentence] = None

    def add(self, sentences: Iterable[str]) -> None:
        """Add mistakes, except those that depend on an entry that was left out."""
        for sentence in sentences:
            if not (isinstance(sentence, Mistake) and any(map(self.touched, filter(None, sentence.keys)))):
                self.say(sentence)

    def check(self, find: Callable[[], Result], *keys: str) -> Result | None:
        """Return the result of ``find``; None if it raises :class:`InvalidInput` or one of ``keys`` was left out."""
        if any(map(self.touched, keys)):
            return None
        try:
            return find()
        except InvalidInput as error:
            self.add(error.sentences)
            return None

    def raise_if_any(self) -> None:
        raise_if_any(self.sentences)

    def result(self) -> Built:
        """Return the object that the file describes; raise :class:`InvalidInput` if a mistake was found."""
        self.raise_if_any()
        assert self.built is not None
        return self.built


def validate(
    target: type[Built],
    content: Mapping[str, Any],
    *,
    keys: Sequence[str] | None = None,
    stand_ins: Mapping[str, Any] = MappingProxyType({}),
) -> Findings[Built]:
    """Validate ``content`` as a ``target``, a section or a dataclass, and collect all mistakes.

    ``keys`` are suggested for an unknown one, by default those of ``target``; ``stand_ins`` replace required keys that
    are missing or wrong, so that an object can always be built.
    """
    found = _Reader[Built](plain(content), key_paths(target) if keys is None else keys)
    found.read(TypeAdapter(target), stand_ins)
    return found


UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
"""Pydantic's error types for an unknown key of a model and of a dataclass."""


class _Reader(Findings[Built]):
    """Validation in rounds: each reports the wrong entries and leaves them out of the next.

    So no mistake hides another: pydantic does not run a section's own validators while an entry of it is wrong.
    """

    def __init__(self, content: Any, keys: Sequence[str]) -> None:
        super().__init__(content)
        self._keys, self._remaining = keys, content

    def read(self, adapter: TypeAdapter[Built], stand_ins: Mapping[str, Any]) -> None:
        self._leave_out(path for leaf, value in _leaves(self.content) for path in self._if_unusable(leaf, value))
        before = None
        while self._remaining != before:
            try:
                # From JSON, pydantic's strict mode accepts lists as tuples but converts no types.
                self.built = adapter.validate_json(json.dumps(self._remaining), strict=True)
                return
            except ValidationError as error:
                errors = error.errors()
            before = self._remaining
            self._leave_out([path for entries in _by_entry(errors, before) for path in self._report(*entries)])
            for key in stand_ins.keys() - self._remaining.keys():
                self._remaining = {**self._remaining, key: stand_ins[key]}
                self.left_out[(key,)] = None

    def _leave_out(self, wrong: Iterable[KeyPath]) -> None:
        paths = set(filter(None, wrong))
        # From the end of each list, so that the other indices stay valid.
        for path in sorted(paths, key=lambda path: [str(part).zfill(9) for part in path], reverse=True):
            self._remaining = _without(self._remaining, path)
        self.left_out |= dict.fromkeys(paths)

    def _if_unusable(self, path: KeyPath, value: Any) -> Iterator[KeyPath]:
        if isinstance(value, float) and not math.isfinite(value):
            yield from self._judge(path, Mistake("", "must be finite", f"it is {_shown(value)}"))
        elif isinstance(value, int) and abs(value) > MOST:
            yield from self._judge(path, Mistake("", f"must be between -{MOST} and {MOST}", f"it is {_shown(value)}"))

    def _report(self, path: KeyPath, errors: Sequence[Any]) -> Iterator[KeyPath]:
        """Report ``errors``, all about the entry at ``path``, and yield the entries to leave out."""
        first = errors[0]
        if first["type"] == "missing":
            if _existing(self.content, first["loc"]) != first["loc"]:  # otherwise it was wrong and has been left out
                self.say(Mistake(_dotted(first["loc"]), ": missing", "this key is required"))
            yield first["loc"][:-1]
        elif first["type"] in UNKNOWN_KEY:
            self.say(self._unknown_key(path))
            self._remaining = _without(self._remaining, path)  # not left out: no default replaces it
        elif isinstance(cause := first.get("ctx", {}).get("error"), InvalidInput):
            for sentence in cause.sentences:
                yield from self._judge(path, Mistake.of(sentence))
        elif first["type"] != "too_short" or not reduce(getitem, path, self._remaining):
            # otherwise pydantic did not count invalid entries, which it reports too
            message = " or ".join(dict.fromkeys(_message(error) for error in errors))  # several for a union
            value = reduce(getitem, path, self._remaining)
            expected = " ".join(str(error.get("ctx", {}).get("expected", "")) for error in errors)  # of a Literal
            hint = suggestion(value, re.findall(r"'(\w+)'", expected)) if isinstance(value, str) else ""
            yield from self._judge(path, Mistake("", message, f"it is {_shown(value)}{hint}"))

    def _judge(self, path: KeyPath, mistake: Mistake) -> Iterator[KeyPath]:
        """Report a ``mistake`` of the entry at ``path`` that depends on no default, and yield what to leave out."""
        if mistake.keys == ("",):  # it depends on all of its section, though not on all entries of its list
            below = (out[len(path) :] for out in self.left_out if out[: len(path)] == path != out)
            on_default, wrong = any(isinstance(part, str) for part, *_ in below), path
        else:
            keys = [(*path, *key.split(".")) for key in mistake.keys]
            on_default = any(map(self.touched, map(_dotted, keys)))
            given = (_existing(self._remaining, key) for key in keys)
            wrong = next((key for key in given if len(key) > len(path)), path)
        if not on_default:
            self.say(mistake.below(_dotted(path)) if path else mistake)
        yield wrong

    def _unknown_key(self, path: KeyPath) -> Mistake:
        value = reduce(getitem, path, self._remaining)
        if isinstance(value, Mapping) and len(value) == 1:  # as --set creates it
            deeper = (*path, *value)
            if any(known.endswith(f".{_dotted(deeper)}") for known in self._keys):
                path = deeper
        hint = _key_hint(_dotted(path), self._keys)
        return Mistake(_dotted(path), f": no such key{hint}", f"{'correct it, or ' if hint else ''}remove it")


DEEPEST = 100
"""The most nested levels of lists and mappings."""


def plain(value: Any, path: KeyPath = ()) -> Any:
    """Return a ``value`` that Python code gave as the values of YAML and JSON; raise if it has no meaning there."""
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


def _by_entry(errors: Sequence[Any], content: Any) -> list[tuple[KeyPath, list[Any]]]:
    """Return the ``errors`` of each entry of ``content``: each member of a union may report one."""
    groups: dict[tuple[KeyPath, KeyPath], list[Any]] = {}
    for error in errors:
        own = error["loc"] if error["type"] in ("missing", *UNKNOWN_KEY) else ()
        groups.setdefault((_existing(content, error["loc"]), own), []).append(error)
    return [(path, group) for (path, _), group in groups.items()]


# Pydantic's error types in plain words.

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
MOST = 2**63 - 1
"""The largest whole number that databases, NumPy and PyTorch hold."""


def _message(error: Any) -> str:
    if error["type"] in MESSAGES:
        text = MESSAGES[error["type"]].format(**error.get("ctx", {}))
        return re.sub(r"<[\w.]+: ('\w+')>", r"\1", text)  # pydantic shows some enum members as <Role.TUNED: 'tuned'>
    text = str(error.get("ctx", {}).get("error") or error["msg"]).rstrip(".")
    return f"{text[0].lower()}{text[1:]}"


def _shown(value: Any) -> str:
    return shortened(without_password(repr(value)))


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


def holds(content: Any, key: str) -> bool:
    """Return True if ``content`` has the entry ``key``, such as ``training.lr``."""
    path = tuple(key.split("."))
    return _existing(content, path) == path


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
