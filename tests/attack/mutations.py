"""Mutations of every kind of file of a finished search: `holdout verify` finds each, or no number changes."""

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attack.inputs import command
from attack.observed import Observed, observe
from attack.world import LOSSES, World

HARMLESS = ("*/logs/*", "report.html", ".driver*", "*.lock")
"""Files that no number comes from: they are not mutated."""


def _flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _digit(content: bytes, draw: random.Random) -> bytes | None:
    """Change a digit, as somebody does who wants a better number."""
    places = [found.start() for found in re.finditer(rb"[0-9]", content)]
    if not places:
        return None
    place = draw.choice(places)
    other = draw.choice([digit for digit in b"0123456789" if digit != content[place]])
    return content[:place] + bytes([other]) + content[place + 1 :]


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "a bit": _flip,
    "a digit": _digit,
    "cut": lambda content, draw: content[: draw.randrange(len(content))],
    "emptied": lambda content, draw: b"",
    "longer": lambda content, draw: content + b"\n{}",
}


@dataclass(frozen=True, kw_only=True)
class Mutated:
    """A mutation of ``file`` and what followed: "caught", "harmless" (every number is the same) or "missed"."""

    kind: str
    file: str
    mutation: str
    result: str
    observed: Observed


def kinds(search: Path) -> dict[str, list[str]]:
    """Return the files of a search by kind: their paths without numbers, hashes and the names of losses."""
    found: dict[str, list[str]] = {}
    for path in [*sorted(search.rglob("*")), search.parent / "test_openings.jsonl"]:
        name = path.relative_to(search.parent).as_posix()
        inner = name.removeprefix(f"{search.name}/")
        if path.is_file() and not any(Path(inner).match(pattern) for pattern in HARMLESS):
            kind = re.sub(r"[0-9a-f]{32}|\d+", "*", inner.replace(LOSSES[0], "LOSS").replace(LOSSES[1], "LOSS"))
            found.setdefault(kind, []).append(name)
    return found


def numbers(folder: Path, world: World) -> list[str]:
    """Return the tables of the search in ``folder``; `verify` too tolerates differences in digits that they omit."""
    asked = [["compare", "small"], *(["trials", "small", loss] for loss in LOSSES)]
    said = [observe(command(*words, "--runs", "runs"), folder, world) for words in asked]
    return [f"{entry.code} {entry.said}" for entry in said]


def mutations(world: World, seed: int, count: int, folder: Path) -> Iterator[Mutated]:
    """Mutate a copy of the search ``count`` times, each kind of file in turn."""
    draw = random.Random(seed)
    found = kinds(world.runs / "small")
    expected: Sequence[str] = ()
    made = 0
    while made < count:
        for kind, names in found.items():
            mutation, change = draw.choice(list(MUTATIONS.items()))
            name = draw.choice(names)
            content = change((world.runs / name).read_bytes(), draw) if (world.runs / name).stat().st_size else None
            if content is None or made == count:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            shutil.copytree(world.runs, folder / "runs")
            expected = expected or numbers(folder, world)
            (folder / "runs" / name).write_bytes(content)
            observed = observe(command("verify", "small", "--runs", "runs"), folder, world)
            caught = observed.code != 0
            same = caught or numbers(folder, world) == expected
            made += 1
            result = "caught" if caught else "harmless" if same else "missed"
            yield Mutated(kind=kind, file=name, mutation=mutation, result=result, observed=observed)


def as_json(entry: Mutated) -> str:
    """Return the line for the log."""
    problems = entry.observed.problems
    return json.dumps({"file": entry.file, "mutation": entry.mutation, "result": entry.result, "problems": problems})
