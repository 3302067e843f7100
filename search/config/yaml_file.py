"""Search files as plain YAML, with `--set` applied on top."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from trainables.mistakes import Mistakes

# YAML as a person writes it into a search file: plain values, each read in one way, and not without measure.
#
# PyYAML reads YAML 1.1, in which 1:30 is ninety, 017 fifteen and no false, and 1e-3 is text. Here the first three are
# text, which is refused where a number or a flag is wanted, and the last is a number.

MOST_CHARACTERS = 1_000_000
MOST_VALUES = 10_000
"""What an alias stands for is counted wherever it stands."""
MOST_DEPTH = 50
MOST_DIGITS = 4_000
"""Python turns no more of them into a number."""

_TAG = "tag:yaml.org,2002:"
_TRUTHS = {"true": True, "false": False}
_INFINITIES = (".inf", "+.inf", "-.inf", ".nan")


def load_plain(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        Mistakes: it is no such text; the sentence begins with a verb, and who knows the text's name puts it before.
    """
    if len(text) > MOST_CHARACTERS:
        raise Mistakes(f"has more than {MOST_CHARACTERS:,} characters, which is no search file; shorten it.")
    try:
        return yaml.load(text, _Loader)  # a subclass of SafeLoader
    except Mistakes:
        raise
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reason = f"the character U+{error.character:04X} may not stand in it"
        raise Mistakes(f"is not valid YAML: line {line}: {reason}; remove it.") from error
    except yaml.MarkedYAMLError as error:
        raise Mistakes(f"is not valid YAML: {_said(error)}; mend it.") from error
    except (ValueError, OverflowError) as error:  # an escape that stands for no character
        raise Mistakes(f"is not valid YAML: {error}; mend it.") from error


def _is_writable(text: str) -> bool:
    """Whether it has no surrogate by itself, which is half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _said(error: yaml.MarkedYAMLError) -> str:
    """Where and why, without the piece of the text that PyYAML draws."""
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + ", ".join(part for part in (error.context, error.problem) if part)


def refuse_odd_key(key: str) -> None:
    """A key is shown in sentences, and so are paths of keys.

    Raises:
        Mistakes: it cannot be shown in a line.
    """
    if not key.isprintable():
        raise Mistakes(f"has the key {key!a:.80}, in which a character cannot be seen; write the key plainly.")


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012
    yaml_constructors: ClassVar[dict[Any, Any]] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._measures: dict[Node, tuple[int, int]] = {}  # of each node how many values it stands for, and how deep

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """The next node; what is too much is refused before it is read on."""
        line, is_alias = self.peek_event().start_mark.line + 1, self.check_event(yaml.AliasEvent)
        self._depth += 1
        _refuse_excess(len(self._measures), self._depth, line)
        node = super().compose_node(parent, index)
        self._depth -= 1
        assert node is not None
        if is_alias and node not in self._measures:
            raise Mistakes(f"holds something that stands within itself (line {line}); write it out.")
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
        """Keys are text, as they are written, and none stands there twice."""
        if not isinstance(node, MappingNode):
            raise ConstructorError(None, None, "keys and values are expected", node.start_mark)
        content: dict[str, Any] = {}
        for key_node, value in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                raise ConstructorError(None, None, "a key must be text", key_node.start_mark)
            key = key_node.value
            refuse_odd_key(key)
            if key == "<<" and key_node.style is None:
                raise Mistakes(f"merges entries with << (line {line}), which is not read; write them out.")
            if key in content:
                raise Mistakes(f"has {key!r} given twice (line {line}); keep one of them.")
            content[key] = self.construct_object(value, deep=True)
        return content

    def sequence(self, node: Node) -> list[Any]:
        """A list."""
        if not isinstance(node, SequenceNode):
            raise ConstructorError(None, None, "a list is expected", node.start_mark)
        return [self.construct_object(value, deep=True) for value in node.value]

    def text(self, node: ScalarNode) -> str:
        """Text that can be written again."""
        text = self.construct_scalar(node)
        if not _is_writable(text):
            raise ConstructorError(None, None, f"{text!a:.40} holds half of a character", node.start_mark)
        return str(text)

    def whole_number(self, node: ScalarNode) -> int:
        """An int of any size that Python reads."""
        text = self.construct_scalar(node)
        if len(text) > MOST_DIGITS:
            problem = f"a number of {len(text):,} characters is expected to have {MOST_DIGITS:,} at most"
            raise ConstructorError(None, None, problem, node.start_mark)
        try:
            return int(text, 0)
        except ValueError:
            raise ConstructorError(None, None, f"{text!r} is no whole number", node.start_mark) from None

    def number(self, node: ScalarNode) -> float:
        """A float, which may be infinite or none."""
        text = self.construct_scalar(node).lower()
        try:
            return float(text.replace(".", "") if text in _INFINITIES else text)
        except ValueError:
            raise ConstructorError(None, None, f"{text!r} is no number", node.start_mark) from None

    def truth(self, node: ScalarNode) -> bool:
        """True or false."""
        text = self.construct_scalar(node)
        if text.lower() not in _TRUTHS:
            raise ConstructorError(None, None, f"{text!r} is neither true nor false", node.start_mark)
        return _TRUTHS[text.lower()]

    def nothing(self, node: ScalarNode) -> None:
        """No value."""
        self.construct_scalar(node)

    def refused(self, node: Node) -> Any:
        """What only programs write: objects of Python, dates, bytes and sets."""
        tag = node.tag.replace(_TAG, "!!")
        raise ConstructorError(None, None, f"the tag {tag} is not read", node.start_mark)


def _refuse_excess(values: int, depth: int, line: int) -> None:
    if values > MOST_VALUES:
        raise Mistakes(f"holds more than {MOST_VALUES:,} values (line {line}), which is no search file; shorten it.")
    if depth > MOST_DEPTH:
        raise Mistakes(f"is more than {MOST_DEPTH} levels deep (line {line}), which is no search file; flatten it.")


for _name, _construct in {
    "map": _Loader.mapping,
    "seq": _Loader.sequence,
    "str": _Loader.text,
    "int": _Loader.whole_number,
    "float": _Loader.number,
    "bool": _Loader.truth,
    "null": _Loader.nothing,
}.items():
    _Loader.add_constructor(_TAG + _name, _construct)
_Loader.add_constructor(None, _Loader.refused)
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
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"^({_pattern})$"), list(_first))


# Reading a search file: plain YAML, and ``--set`` on top.


def parse_yaml(text: str, origin: str) -> Any:
    """The value of a YAML text; ``origin`` names it in a mistake."""
    try:
        return load_plain(text)
    except Mistakes as error:
        raise Mistakes([f"{origin} {sentence}" for sentence in error.sentences]) from error


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in the YAML file at ``path``."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe without a writer, or without an end
            raise Mistakes(f"{path} is no regular file; write its content into one, and name that.")
        with path.open("rb") as file:
            text = file.read(4 * MOST_CHARACTERS + 1).decode("utf-8")  # a character has four bytes at most
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
    """``content`` with each ``key.path=value`` of ``settings`` (the value is YAML) set in it."""
    changed = dict(content)
    mistakes = []
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = path.split(".")
        if not equals or not all(keys) or len(keys) > MOST_DEPTH:
            mistakes.append(f"--set needs key.path=value, such as search.trials=20; it is {_short(repr(setting))}.")
            continue
        try:
            refuse_odd_key(path)
            changed = with_value(changed, keys, parse_yaml(text, ""))
        except Mistakes as error:
            mistakes += [f"--set {_short(setting)} {sentence.strip()}" for sentence in error.sentences]
    if mistakes:
        raise Mistakes(mistakes)
    return changed


def with_value(content: dict[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """``content`` with ``value`` at the entry that ``keys`` lead to; mappings on the way are made."""
    key, *rest = keys
    inner = content.get(key)
    return {**content, key: with_value(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"
