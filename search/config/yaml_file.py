"""Search files as plain YAML, and ``--set``, which changes them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from trainables.errors import InvalidInput, raise_if_any, shortened

MOST_CHARACTERS = 1_000_000
MOST_VALUES = 10_000
"""Values in a file; an alias counts as often as it is used."""
MOST_DEPTH = 50


# Reading a search file, and ``--set``.


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in the YAML file at ``path``.

    Raises:
        InvalidInput: the file cannot be read, is not YAML, or holds no mapping.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe may never end
            raise InvalidInput(f"{path} is not a regular file; copy its content into one, and name that.")
        with path.open("rb") as file:
            text = file.read(4 * MOST_CHARACTERS + 1).decode("utf-8")  # a character has at most four bytes
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror or error}); name a search file.") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text; save it as UTF-8, or name a search file.") from error
    value = parse_yaml(text, str(path))
    if not isinstance(value, dict):
        held = "is empty" if value is None else f"holds {value!r:.60}"
        raise InvalidInput(f"{path} must hold keys and values, such as `name: quickstart`; it {held}.")
    return value


def apply_settings(content: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return ``content`` with each ``key.path=value`` of ``settings`` (the value is YAML) set in it.

    Raises:
        InvalidInput: all settings that cannot be read.
    """
    changed = dict(content)
    mistakes = []
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = path.split(".")
        if not equals or not all(keys) or len(keys) > MOST_DEPTH:
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
    """Return the value of a YAML text.

    Raises:
        InvalidInput: it is not a valid YAML text; the sentences begin with ``origin``.
    """
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
    except ReaderError as error:
        line = text.encode().count(b"\n", 0, error.position) + 1
        reason = f"the character U+{error.character:04X} is not allowed"
        raise InvalidInput(f"is not valid YAML: line {line}: {reason}; remove it.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise InvalidInput(f"is not valid YAML: {where}{reason}; correct it.") from error
    except UnicodeEncodeError as error:  # a command line that is not UTF-8
        raise InvalidInput("is not valid text; write it in UTF-8.") from error


def yaml_text(content: Mapping[str, Any]) -> str:
    """Return the YAML that is read as ``content``."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _check_key(key: str) -> None:
    """Raise if ``key`` cannot be printed in an error message."""
    if not key.isprintable():
        raise InvalidInput(f"has the key {key!a:.80}, which holds an invisible character; write the key plainly.")


# Parsing: the plain values of YAML 1.2, within limits.

_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*(_\d+)*)|0x[\da-f]+", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(
    r"[-+]?((\.\d+|\d+(_\d+)*\.\d*)(e[-+]?\d+)?|\d+(_\d+)*e[-+]?\d+|\.inf)|\.nan", re.ASCII | re.IGNORECASE
)
_MOST_DIGITS = 4_000
"""Python refuses to convert longer numbers."""


class _Parser:
    """Reader of mappings with text keys, lists, text, numbers, booleans and null from the events of libyaml.

    PyYAML's own values are those of YAML 1.1, which reads 1:30 as 90, 017 as 15, ``no`` as false and 1e-3 as text. Here
    the first three are text, which is refused where a number or a flag is wanted, and the last is a number.
    """

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._anchors: dict[str, tuple[Any, int]] = {}  # each value, and the number of values in it
        self._values = 0

    def document(self) -> Any:
        """Return the value of the only document; None if there is none."""
        value, is_read = None, False
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                _require(not is_read, event, "a single document is expected; remove the others")
                value, is_read = self._value(next(self._events), depth=1), True
        return value

    def _value(self, event: Any, *, depth: int) -> Any:
        """Return the value that begins with ``event``; raise as soon as there are too many values or levels."""
        line = event.start_mark.line + 1
        if depth > MOST_DEPTH:
            raise InvalidInput(
                f"is more than {MOST_DEPTH} levels deep (line {line}), too deep for a search file; flatten it."
            )
        before, value = self._values, None
        if isinstance(event, yaml.AliasEvent):
            _require(
                event.anchor in self._anchors, event, f"*{event.anchor} has no &{event.anchor} before it; write it out"
            )
            value, values = self._anchors[str(event.anchor)]
            self._values += values
        else:
            tag = (event.tag or "").replace("tag:yaml.org,2002:", "!!")
            _require(not tag, event, f"the tag {tag} is not supported; remove it")
            self._values += 1
        if self._values > MOST_VALUES:
            raise InvalidInput(
                f"holds more than {MOST_VALUES:,} values (line {line}), too many for a search file; shorten it."
            )
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(depth)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = [self._value(entry, depth=depth + 1) for entry in self._until(yaml.SequenceEndEvent)]
        elif isinstance(event, yaml.ScalarEvent):
            value = _plain_value(event) if event.implicit[0] else event.value
        if event.anchor and not isinstance(event, yaml.AliasEvent):
            self._anchors[event.anchor] = (value, self._values - before)
        return value

    def _mapping(self, depth: int) -> dict[str, Any]:
        """Return a mapping, whose keys are text as written, without duplicates."""
        content: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            _require(isinstance(event, yaml.ScalarEvent), event, "a key must be text; correct it")
            key = event.value
            _check_key(key)
            if key == "<<" and event.implicit[0]:
                raise InvalidInput(f"merges entries with << (line {line}), which is not supported; write them out.")
            if key in content:
                raise InvalidInput(f"has the key {key!r} twice (line {line}); keep one of them.")
            content[key] = self._value(next(self._events), depth=depth + 1)
        return content

    def _until(self, end: type[yaml.Event]) -> Iterator[Any]:
        return iter(lambda: None if isinstance(event := next(self._events), end) else event, None)


def _plain_value(event: Any) -> bool | int | float | str | None:
    """Return the value of text without quotes."""
    text: str = event.value
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE_NUMBER.fullmatch(text):
        digits = f"a number may have at most {_MOST_DIGITS:,} digits; this has {len(text):,}; correct it"
        _require(len(text) <= _MOST_DIGITS, event, digits)
        return int(text, 0)
    if _NUMBER.fullmatch(text):
        return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
    return text


def _require(holds: bool, event: Any, problem: str) -> None:
    if not holds:
        mark = event.start_mark
        raise InvalidInput(f"is not valid YAML: line {mark.line + 1}, column {mark.column + 1}: {problem}.")


class _Dumper(yaml.CSafeDumper):
    """Writer that puts text in quotes that would be a number here, such as 1e5, and is none in YAML 1.1."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"(?:{_NUMBER.pattern})$", _NUMBER.flags), [*"-+.0123456789"]
)
