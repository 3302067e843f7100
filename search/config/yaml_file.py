"""Search files as plain YAML, and ``--set``, which changes them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from trainables.common.errors import InvalidInput, raise_if_any, shortened

MOST_CHARACTERS = 1_000_000


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in the YAML file at ``path``; raise if it cannot be read, is not YAML or holds no mapping."""
    try:
        with path.open("rb") as file:
            text = file.read(4 * MOST_CHARACTERS + 1).decode("utf-8")  # a character has at most four bytes
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror or error}); name a search file.") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text; save it as UTF-8, or name a search file.") from error
    value = parse_yaml(text, str(path))
    if not isinstance(value, dict):
        held = "is empty" if value is None else "holds a list" if isinstance(value, list) else "holds a single value"
        raise InvalidInput(f"{path} must hold keys and values, such as `name: quickstart`; it {held}.")
    return value


def apply_settings(content: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return ``content`` with each ``key.path=value`` of ``settings`` (the value is YAML) set in it."""
    changed = dict(content)
    mistakes = []
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = path.split(".")
        if not equals or not all(keys) or len(keys) > 20:
            mistakes.append(f"--set needs key.path=value, such as search.trials=20; it is {shortened(repr(setting))}.")
            continue
        try:
            _check_key(path)
            changed = with_value(changed, keys, _load(text))
        except InvalidInput as error:
            mistakes += [f"--set {shortened(setting)} {sentence}" for sentence in error.sentences]
    raise_if_any(mistakes)
    return changed


def with_value(content: dict[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return ``content`` with ``value`` at the path ``keys``; missing mappings on the way are created."""
    key, *rest = keys
    inner = content.get(key)
    return {**content, key: with_value(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def parse_yaml(text: str, origin: str) -> Any:
    """Return the value of a YAML text; raise with sentences that begin with ``origin`` if it is not valid."""
    try:
        return _load(text)
    except InvalidInput as error:
        raise InvalidInput([f"{origin} {sentence}" for sentence in error.sentences]) from error


def _load(text: str) -> Any:
    """Return the value of a YAML text; the sentences of the mistakes it raises lack their subject."""
    if len(text) > MOST_CHARACTERS:
        raise InvalidInput(f"has more than {MOST_CHARACTERS:,} characters, too many for a search file; shorten it.")
    try:
        return _Parser(text).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise InvalidInput(f"is not valid YAML: {where}{reason}; correct it.") from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise InvalidInput(f"is not valid YAML: {str(error).partition(chr(10))[0]}; write it in UTF-8.") from error
    except RecursionError as error:
        raise InvalidInput("is not a search file: it has too many levels; flatten it.") from error


def yaml_text(content: Mapping[str, Any]) -> str:
    """Return the YAML that is read as ``content``."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _check_key(key: str) -> None:
    if not key.isprintable():
        raise InvalidInput(f"has the key {key!a:.80}, which holds an invisible character; write the key plainly.")


# Parsing: the plain values of YAML 1.2.

_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*(_\d+)*)|0x[\da-f]+", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(
    r"[-+]?((\.\d+|\d+(_\d+)*\.\d*)(e[-+]?\d+)?|\d+(_\d+)*e[-+]?\d+|\.inf)|\.nan", re.ASCII | re.IGNORECASE
)


class _Parser:
    """The value of a YAML text, from PyYAML's events."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._anchors: dict[str | None, Any] = {}

    def document(self) -> Any:
        """Return the value of the only document; None if there is none."""
        found: list[Any] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                _require(not found, event, "a single document is expected; remove the others")
                found.append(self._value(next(self._events)))
        return found[0] if found else None

    def _value(self, event: Any, *, anchored: bool = False) -> Any:
        """Return the value that begins with ``event``; ``anchored`` if it is part of one with an anchor."""
        if isinstance(event, yaml.AliasEvent):
            _require(event.anchor in self._anchors, event, f"*{event.anchor} has no &{event.anchor} before it")
            _require(not anchored, event, f"*{event.anchor} is part of a value with an anchor")  # they would multiply
            return self._anchors[event.anchor]
        _require(not event.tag, event, f"the tag {event.tag} is not supported; remove it")
        anchored |= event.anchor is not None
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = _plain_value(event) if event.implicit[0] else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = [self._value(entry, anchored=anchored) for entry in self._until(yaml.SequenceEndEvent)]
        else:
            value = {}
            for key in self._until(yaml.MappingEndEvent):
                _require(isinstance(key, yaml.ScalarEvent), key, "a key must be text")
                _check_key(key.value)
                _require(key.value not in value, key, f"the key {key.value!r} is given twice; keep one of them")
                value[key.value] = self._value(next(self._events), anchored=anchored)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _until(self, end: type[yaml.Event]) -> Iterator[Any]:
        return iter(lambda: None if isinstance(event := next(self._events), end) else event, None)


def _plain_value(event: Any) -> bool | int | float | str | None:
    text: str = event.value
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE_NUMBER.fullmatch(text):
        _require(len(text) < 1_000, event, "the number is too long")
        return int(text, 0)
    if _NUMBER.fullmatch(text):
        return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
    return text


def _require(holds: bool, event: Any, problem: str) -> None:
    if not holds:
        mark, fix = event.start_mark, "" if ";" in problem else "; write it out"
        raise InvalidInput(f"is not valid YAML: line {mark.line + 1}, column {mark.column + 1}: {problem}{fix}.")


class _Dumper(yaml.CSafeDumper):
    """Writer that puts text in quotes that would be a number here, such as 1e5, and is none in YAML 1.1."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"(?:{_NUMBER.pattern})$", _NUMBER.flags), [*"-+.0123456789"]
)
