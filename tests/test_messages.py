"""The messages of the product: the commands, options and keys that they name exist, and the settings are accepted."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from test_docs import COMMANDS, EVERYWHERE

from search.config.campaign import CampaignConfig
from search.config.keys import SECTION, keys_of
from search.config.search_config import SearchConfig, parse_config
from search.config.yaml_file import apply_settings
from trainables.errors import InvalidInput

ROOT = Path(__file__).parent.parent
KEYS = {key.name: key for target in (SearchConfig, CampaignConfig) for key in keys_of(target)}
SECTIONS = {key.name for key in KEYS.values() if key.type == SECTION}
OPEN = ("model.name", "dataset.", "space.", "losses.", "search.constraints", "trainables.", "search.trials")
"""Prefixes whose next part is the user's, or is a module of ours, and a common mistake that is corrected."""
FILES = (".json", ".yaml", ".csv", ".md", ".safetensors", ".onnx")
NO_VALUES = {"the", "its", "it", "metrics", "timm", "cmaes"}
"""Words of a sentence that begins with a key, and what names a part of a value or what is refused."""


@cache
def messages() -> list[tuple[str, str]]:
    """Return every string of the product but docstrings, with its place; what a template inserts is ``…``."""
    found = []
    for room in ("holdout", "search", "spaces", "trainables"):
        for path in sorted((ROOT / room).rglob("*.py")):
            nodes = [*ast.walk(ast.parse(path.read_text()))]
            statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in nodes:
                text = _text(node)
                if text is not None and id(node) not in statements | inside:
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", text))  # type: ignore[attr-defined]
    return found


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def test_commands_and_options_exist() -> None:
    found = 0
    for place, text in messages():
        for command, rest in re.findall(r"(?:^|[\s/`])holdout ([a-z-]+)([^#;|&`]*)", text):
            if command not in COMMANDS:
                assert f"`holdout {command}" not in text, f"{place} names `holdout {command}`"
                continue
            found += 1
            known = {option for parameter in COMMANDS[command].params for option in parameter.opts} | EVERYWHERE
            unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)) - known
            assert not unknown, f"{place} names `holdout {command} {unknown.pop()}`"
    assert found > 50


def test_keys_exist() -> None:
    found = 0
    for place, text in messages():
        for name in re.findall(rf"(?<![\w./])((?:{'|'.join(SECTIONS)})\.[a-z_]+)(?![\w./(])", text):
            if not name.startswith(OPEN) and not name.endswith(FILES):
                found += 1
                assert name in KEYS, f"{place} names {name}"
    assert found > 100


def test_settings_are_accepted() -> None:
    content = {"name": "a", "dataset": {"name": "glyphs"}, "losses": ["pnp"], "search": {"trials": 2}}
    found = 0
    for place, text in messages():
        for key, value in re.findall(r"([a-z]+\.[a-z_.]+)(?:: |=)([a-z]+|\d[\d.e-]*\d|\d)\b(?!…)", text):
            if key in KEYS and value not in NO_VALUES:
                found += 1
                try:
                    parse_config(apply_settings(content, [f"{key}={value}"]))
                except InvalidInput as error:
                    pytest.fail(f"{place} names {key}={value}: {error}")
    assert found > 3
