"""Reading a search file: safe YAML, numbers as people write them, no key twice, and ``--set`` on top."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from trainables.mistakes import Mistakes


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which reads 1e-3 as a number (YAML 1.1 does not) and refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise Mistakes(f"{key!r} is given twice (line {key_node.start_mark.line + 1}); keep one of them.")
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def parse_yaml(text: str, origin: str) -> Any:
    """The value of a YAML text; ``origin`` names it in a mistake."""
    try:
        return yaml.load(text, _Loader)  # a subclass of SafeLoader
    except yaml.YAMLError as error:
        raise Mistakes(f"{origin} is not valid YAML: {' '.join(str(error).split())}.") from error
    except Mistakes as error:
        raise Mistakes([f"{origin}: {sentence}" for sentence in error.sentences]) from error


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in the YAML file at ``path``."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Mistakes(f"{path} cannot be read ({error.strerror or error}); name a search file.") from error
    except UnicodeDecodeError as error:
        raise Mistakes(f"{path} is not UTF-8 text; name a search file.") from error
    value = parse_yaml(text, str(path))
    if not isinstance(value, dict):
        raise Mistakes(f"{path} must hold keys and values, such as `name: quickstart`; it holds {value!r:.60}.")
    return value


def apply_settings(content: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """``content`` with each ``key.path=value`` of ``settings`` (the value is YAML) set in it."""
    changed = dict(content)
    mistakes = []
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = path.split(".")
        if not equals or not all(keys):
            mistakes.append(f"--set needs key.path=value, such as search.trials=20; it is {setting!r}.")
            continue
        changed = with_value(changed, keys, parse_yaml(text, f"--set {setting}"))
    if mistakes:
        raise Mistakes(mistakes)
    return changed


def with_value(content: dict[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """``content`` with ``value`` at the entry that ``keys`` lead to; mappings on the way are made."""
    key, *rest = keys
    inner = content.get(key)
    return {**content, key: with_value(inner if isinstance(inner, dict) else {}, rest, value) if rest else value}
