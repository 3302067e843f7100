"""Search files as plain YAML, and ``--set``, which changes them."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from trainables.mistakes import Mistakes, raise_if_any

BYTE_ORDER_MARK = "\ufeff"
MOST_CHARACTERS = 1_000_000
MOST_VALUES = 10_000
"""Values in a file; an alias counts as often as it is used."""
MOST_DEPTH = 50
MOST_DIGITS = 4_000
"""Python refuses to convert longer numbers."""


# Reading a search file, and ``--set``.


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in the YAML file at ``path``.

    Raises:
        Mistakes: the file cannot be read, is not YAML, or holds no mapping.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe may never end
            raise Mistakes(f"{path} is not a regular file; copy its content into one, and name that.")
        with path.open("rb") as file:
            text = file.read(4 * MOST_CHARACTERS + 1).decode("utf-8")  # a character has at most four bytes
    except OSError as error:
        raise Mistakes(f"{path} cannot be read ({error.strerror or error}); name a search file.") from error
    except UnicodeDecodeError as error:
        raise Mistakes(f"{path} is not UTF-8 text; save it as UTF-8, or name a search file.") from error
    value = parse_yaml(text, str(path))
    if not isinstance(value, dict):
        held = "is empty" if value is None else f"holds {value!r:.60}"
        raise Mistakes(f"{path} must hold keys and values, such as `name: quickstart`; it {held}.")
    return value


def apply_settings(content: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return ``content`` with each ``key.path=value`` of ``settings`` (the value is YAML) set in it.

    Raises:
        Mistakes: all settings that cannot be read.
    """
    changed = dict(content)
    mistakes = []
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = path.split(".")
        if not equals or not all(keys) or len(keys) > MOST_DEPTH:
            mistakes.append(f"--set needs key.path=value, such as search.trials=20; it is {_short(repr(setting))}.")
            continue
        try:
            _check_key(path)
            changed = with_value(changed, keys, _load(text))
        except Mistakes as error:
            mistakes += [f"--set {_short(setting)} {sentence}" for sentence in error.sentences]
    raise_if_any(mistakes)
    return changed


def with_value(content: dict[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return ``content`` with ``value`` at the path ``keys``; missing mappings on the way are created."""
    key, *rest = keys
    inner = content.get(key)
    return {**content, key: with_value(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"


def parse_yaml(text: str, origin: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        Mistakes: it is not a valid YAML text; the sentences begin with ``origin``.
    """
    try:
        return _load(text)
    except Mistakes as error:
        raise Mistakes([f"{origin} {sentence}" for sentence in error.sentences]) from error


def _load(text: str) -> Any:
    """Return the value of a YAML text; the sentences of the mistakes it raises lack their subject."""
    if len(text) > MOST_CHARACTERS:
        raise Mistakes(f"has more than {MOST_CHARACTERS:,} characters, too many for a search file; shorten it.")
    if BYTE_ORDER_MARK not in text:  # the parsers differ in where they skip it
        with suppress(Mistakes, yaml.YAMLError, ValueError, OverflowError):  # refused below, in PyYAML's own words
            return yaml.load(text, _FastLoader)
    try:
        return yaml.load(text, _Loader)
    except Mistakes:
        raise
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reason = f"the character U+{error.character:04X} is not allowed"
        raise Mistakes(f"is not valid YAML: line {line}: {reason}; remove it.") from error
    except yaml.MarkedYAMLError as error:
        raise Mistakes(f"is not valid YAML: {_reason(error)}; correct it.") from error
    except (ValueError, OverflowError) as error:  # an escape sequence beyond Unicode
        raise Mistakes(f"is not valid YAML: {error}; correct it.") from error


def _reason(error: yaml.MarkedYAMLError) -> str:
    """Return position and reason, without the excerpt that PyYAML adds."""
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + ", ".join(part for part in (error.context, error.problem) if part)


def _check_key(key: str) -> None:
    """Raise if ``key`` cannot be printed in an error message."""
    if not key.isprintable():
        raise Mistakes(f"has the key {key!a:.80}, which holds an invisible character; write the key plainly.")


# Parsing: the plain values of YAML 1.2, within limits.

_TAG = "tag:yaml.org,2002:"
_TRUTHS = {"true": True, "false": False}
_INFINITIES = (".inf", "+.inf", "-.inf", ".nan")


class _Rules(yaml.SafeLoader if TYPE_CHECKING else object):  # type: ignore[misc]
    """Mappings with text keys, lists, text, numbers, booleans and null, from the events of a parser.

    PyYAML follows YAML 1.1, which reads 1:30 as 90, 017 as 15, ``no`` as false and 1e-3 as text. Here the first three
    are text, which is refused where a number or a flag is wanted, and the last is a number.
    """

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012
    yaml_constructors: ClassVar[dict[Any, Any]] = {}

    def begin(self) -> None:
        """Set the counts to zero."""
        self._depth = 0
        self._measures: dict[Node, tuple[int, int]] = {}  # number of values in each node, and its depth

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Return the next node; raise as soon as there are too many values or levels."""
        line, is_alias = self.peek_event().start_mark.line + 1, self.check_event(yaml.AliasEvent)
        self._depth += 1
        _refuse_excess(len(self._measures), self._depth, line)
        node = super().compose_node(parent, index)
        self._depth -= 1
        assert node is not None
        if is_alias and node not in self._measures:
            raise Mistakes(f"holds an alias to an entry that contains it (line {line}); write it out.")
        if not is_alias:
            self._measures[node] = self._measured(node)
            _refuse_excess(*self._measures[node], line)
        return node

    def _measured(self, node: Node) -> tuple[int, int]:
        inner = node.value if isinstance(node, SequenceNode) else []
        if isinstance(node, MappingNode):
            inner = [part for pair in node.value for part in pair]
        found = [self._measures[part] for part in inner]
        return 1 + sum(values for values, _ in found), 1 + max((depth for _, depth in found), default=0)

    def mapping(self, node: Node) -> dict[str, Any]:
        """Return a mapping, whose keys are text as written, without duplicates."""
        if not isinstance(node, MappingNode):
            raise ConstructorError(None, None, "keys and values are expected", node.start_mark)
        content: dict[str, Any] = {}
        for key_node, value in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                raise ConstructorError(None, None, "a key must be text", key_node.start_mark)
            key = key_node.value
            _check_key(key)
            if key == "<<" and not key_node.style:
                raise Mistakes(f"merges entries with << (line {line}), which is not supported; write them out.")
            if key in content:
                raise Mistakes(f"has the key {key!r} twice (line {line}); keep one of them.")
            content[key] = self.construct_object(value, deep=True)
        return content

    def sequence(self, node: Node) -> list[Any]:
        """Return a list."""
        if not isinstance(node, SequenceNode):
            raise ConstructorError(None, None, "a list is expected", node.start_mark)
        return [self.construct_object(value, deep=True) for value in node.value]

    def text(self, node: ScalarNode) -> str:
        """Return text that can be encoded."""
        text = str(self.construct_scalar(node))
        try:
            text.encode()
        except UnicodeEncodeError:
            problem = f"{text!a:.40} holds half of a character (a lone surrogate)"
            raise ConstructorError(None, None, problem, node.start_mark) from None
        return text

    def whole_number(self, node: ScalarNode) -> int:
        """Return an int of any size that Python converts."""
        text = self.construct_scalar(node)
        if len(text) > MOST_DIGITS:
            problem = f"a number may have at most {MOST_DIGITS:,} digits; this has {len(text):,}"
            raise ConstructorError(None, None, problem, node.start_mark)
        try:
            return int(text, 0)
        except ValueError:
            raise ConstructorError(None, None, f"{text!r} is not a whole number", node.start_mark) from None

    def number(self, node: ScalarNode) -> float:
        """Return a float, which may be infinite or NaN."""
        text = self.construct_scalar(node).lower()
        try:
            return float(text.replace(".", "") if text in _INFINITIES else text)
        except ValueError:
            raise ConstructorError(None, None, f"{text!r} is not a number", node.start_mark) from None

    def truth(self, node: ScalarNode) -> bool:
        """Return a bool."""
        text = self.construct_scalar(node)
        if text.lower() not in _TRUTHS:
            raise ConstructorError(None, None, f"{text!r} is neither true nor false", node.start_mark)
        return _TRUTHS[text.lower()]

    def nothing(self, node: ScalarNode) -> None:
        """Return None."""
        self.construct_scalar(node)

    def refused(self, node: Node) -> Any:
        """Raise: Python objects, dates, bytes and sets are not supported."""
        tag = node.tag.replace(_TAG, "!!")
        raise ConstructorError(None, None, f"the tag {tag} is not supported", node.start_mark)


class _Loader(_Rules, yaml.SafeLoader):
    """Loader by PyYAML's own parser, whose errors are exact."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.begin()


class _FastLoader(_Rules, Composer, yaml.CSafeLoader):
    """Loader by libyaml's parser, which is many times as fast. What both accept has the same value."""

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self.begin()


def _refuse_excess(values: int, depth: int, line: int) -> None:
    if values > MOST_VALUES:
        raise Mistakes(f"holds more than {MOST_VALUES:,} values (line {line}), too many for a search file; shorten it.")
    if depth > MOST_DEPTH:
        raise Mistakes(f"is more than {MOST_DEPTH} levels deep (line {line}), too deep for a search file; flatten it.")


for _name, _construct in {
    "map": _Rules.mapping,
    "seq": _Rules.sequence,
    "str": _Rules.text,
    "int": _Rules.whole_number,
    "float": _Rules.number,
    "bool": _Rules.truth,
    "null": _Rules.nothing,
}.items():
    _Rules.yaml_constructors[_TAG + _name] = _construct
_Rules.yaml_constructors[None] = _Rules.refused
for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9]\d*(_\d+)*)|0x[\da-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?((\.\d+|\d+(_\d+)*\.\d*)([eE][-+]?\d+)?|\d+(_\d+)*[eE][-+]?\d+|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
):
    for _character in _first:
        _Rules.yaml_implicit_resolvers.setdefault(_character, []).append((_TAG + _name, re.compile(f"^({_pattern})$")))
