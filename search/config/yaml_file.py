"""Reading a search file: plain YAML, and ``--set`` on top."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search.config.validation.plain_yaml import MOST_CHARACTERS, MOST_DEPTH, load_plain, refuse_odd_key
from trainables.mistakes import Mistakes


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
