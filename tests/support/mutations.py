"""Mutations of files, drawn: of their bytes, and of the values in JSON, YAML, journals and arrays."""

import io
import json
import random
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from support.journals import operations, with_checksums

PAGES = ("*/logs/*", "report.html", "README.md", ".driver*", "*.lock")
"""Files of a search from which no number is read."""


def bits(content: bytes, draw: random.Random, within: int | None = None) -> bytes:
    """Change a bit, or several bytes, of the first ``within``."""
    changed, end = bytearray(content), min(within or len(content), len(content))
    if draw.random() < 0.5:
        changed[draw.randrange(end)] ^= 1 << draw.randrange(8)
    for _ in range(8 if changed == content else 0):
        changed[draw.randrange(end)] = draw.randrange(256)
    return bytes(changed)


def digit(content: bytes, draw: random.Random) -> bytes:
    """Change a digit, as somebody does who wants a better number; without one, a bit."""
    if not (places := [found.start() for found in re.finditer(rb"[0-9]", content)]):
        return bits(content, draw)
    place = draw.choice(places)
    other = draw.choice([digit for digit in b"0123456789" if digit != content[place]])
    return content[:place] + bytes([other]) + content[place + 1 :]


OF_BYTES: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "bits": bits,
    "a header": lambda content, draw: bits(content, draw, 120),
    "a digit": digit,
    "cut": lambda content, draw: content[: draw.randrange(len(content))],
    "emptied": lambda content, draw: b"",
    "longer": lambda content, draw: content + draw.choice((b"0", b"\n{}")),
    "removed": lambda content, draw: None,
}
"""Mutations of any file that is not empty; None removes it."""


def replace_leaf(content: Any, value: Any, draw: random.Random) -> None:
    """Replace a value of nested lists and dictionaries; rarely a key, or a whole branch.

    ``value`` may be a function of the one before.
    """
    leaves: list[tuple[Any, Any]] = []

    def walk(branch: Any) -> None:
        for key, entry in branch.items() if isinstance(branch, dict) else enumerate(branch):
            if not isinstance(entry, dict | list) or draw.random() < 0.1:
                leaves.append((branch, key))
            if isinstance(entry, dict | list):
                walk(entry)

    walk(content)
    branch, key = draw.choice(leaves)
    new = value(branch[key]) if callable(value) else value
    if isinstance(branch, dict) and draw.random() < 0.1:
        branch[new if isinstance(new, str) else str(new)] = branch.pop(key)
    else:
        branch[key] = new


def another(value: Any, draw: random.Random) -> Any:
    """Return another value of the same type, as somebody writes it who wants a better number."""
    match value:
        case bool():
            return not value
        case int():
            return value + draw.choice((-1, 1, 10))
        case float():
            return value * draw.choice((1 + 1e-6, 1.01, 2)) + (draw.choice((0, 0.01)) if value else 1e-6)
        case str():
            return draw.choice((f"{value}x", f"x{value[1:]}x", re.sub("[0-9]", "7", f"{value}0")))
        case [_, *rest]:
            return rest
        case dict() if value:
            return dict([*value.items()][1:])
    return draw.choice((0, ""))


OF_ARRAYS: tuple[Callable[[Any], Any], ...] = (
    lambda array: array[:-1] if array.ndim else array[None],
    lambda array: np.resize(array, (50_000, *array.shape[1:])),
    lambda array: np.zeros(30_000_000, dtype=np.int8),
    lambda array: array.astype(str),
    lambda array: np.array(["\ud800"] * len(np.atleast_1d(array))),
    lambda array: np.array(["<script>alert(1)</script>"] * len(np.atleast_1d(array))),
    lambda array: np.full(array.shape, np.nan),
    lambda array: np.full(array.shape, -(2**40)),
    lambda array: array[..., None],
    lambda array: np.atleast_1d(array)[::-1],
    lambda array: np.zeros((0,), dtype=array.dtype),
)


def replace_array(path: Path, change: Callable[[Any], Any], draw: random.Random) -> None:
    """Change one of the arrays of an ``.npz`` file."""
    with np.load(path) as file:
        arrays = dict(file)
    key = draw.choice(list(arrays))
    arrays[key] = change(arrays[key])
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    path.write_bytes(content.getvalue())


def replace_value(path: Path, value: Any, draw: random.Random) -> None:
    """Replace a value in a record: JSON, JSON lines, YAML or a journal; it may be a function of the one before.

    Whole lines of a journal may be removed or swapped, too; all its checksums match again.
    """
    if path.suffix == ".journal":
        found = operations(path)
        place, other = draw.randrange(len(found)), draw.randrange(len(found))
        match draw.randrange(6):
            case 0:
                del found[place]
            case 1:
                found[place], found[other] = found[other], found[place]
            case _:
                replace_leaf(found[place], value, draw)
        path.write_bytes(with_checksums(found))
    elif path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        replace_leaf(lines, value, draw)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    else:
        content = yaml.safe_load(path.read_text())
        replace_leaf(content, value, draw)
        is_yaml = path.suffix == ".yaml"
        path.write_text(yaml.safe_dump(content, allow_unicode=True) if is_yaml else json.dumps(content))


def mutate(path: Path, draw: random.Random) -> str:
    """Mutate a file that is no hard link; return the name of the mutation."""
    content = path.read_bytes()
    if path.suffix in (".json", ".jsonl", ".yaml", ".journal") and draw.random() < 0.5:
        while path.read_bytes() == content:
            replace_value(path, lambda before: another(before, draw), draw)
        return "a value"
    if path.suffix == ".npz" and draw.random() < 0.5:
        while path.read_bytes() == content:
            replace_array(path, draw.choice(OF_ARRAYS), draw)
        return "an array"
    name, change = draw.choice(list(OF_BYTES.items()))
    new = change(content, draw) if content else b"x"
    path.unlink()
    if new is not None:
        path.write_bytes(new)
    return name


def drawn_files(runs: Path, losses: tuple[str, ...], draw: random.Random) -> Iterator[str]:
    """Yield without end a file of ``small`` of each kind: its path without numbers, digests and names of losses."""
    found: dict[str, list[str]] = {}
    for path in sorted([*(runs / "small").rglob("*"), *runs.glob("test_openings*/*"), runs / "test_openings.jsonl"]):
        name = path.relative_to(runs).as_posix()
        if path.is_file() and not any(fnmatch(path.name, page) or fnmatch(name, page) for page in PAGES):
            kind = re.sub(r"[0-9a-f]{32,}|\d+", "*", re.sub("|".join(losses), "LOSS", name.removeprefix("small/")))
            found.setdefault(kind, []).append(name)
    while True:
        yield from map(draw.choice, found.values())
