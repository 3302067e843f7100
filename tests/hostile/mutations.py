"""Mutations of every kind of file of a finished search: `holdout verify` finds each, or no number changes."""

import itertools
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.mutations import drawn_files, mutate

from hostile.inputs import command
from hostile.observed import Observed, observe
from hostile.world import LOSSES, World


@dataclass(frozen=True, kw_only=True)
class Mutated:
    """A mutation of ``file`` and what followed: "caught", "harmless" (every number is the same) or "missed"."""

    kind: str
    file: str
    mutation: str
    result: str
    observed: Observed


def numbers(folder: Path, world: World) -> list[str]:
    """Return the tables of the search in ``folder``; `verify` too tolerates differences in digits that they omit."""
    asked = [["compare", "small"], *(["trials", "small", loss] for loss in LOSSES)]
    said = [observe(command(*words, "--runs", "runs"), folder, world) for words in asked]
    return [f"{entry.code} {entry.said}" for entry in said]


def mutations(world: World, seed: int, count: int, folder: Path) -> Iterator[Mutated]:
    """Mutate a copy of the search ``count`` times, each kind of file in turn."""
    draw = random.Random(seed)
    expected: Sequence[str] = ()
    for kind, name in itertools.islice(drawn_files(world.origin / "runs", LOSSES, draw), count):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copytree(world.origin / "runs", folder / "runs")
        expected = expected or numbers(folder, world)
        mutation = mutate(folder / "runs" / name, draw)
        observed = observe(command("verify", "small", "--runs", "runs"), folder, world)
        same = observed.code != 0 or numbers(folder, world) == expected
        result = "caught" if observed.code else "harmless" if same else "missed"
        yield Mutated(kind=kind, file=name, mutation=mutation, result=result, observed=observed)


def as_json(entry: Mutated) -> str:
    """Return the line for the log."""
    problems = entry.observed.problems
    return json.dumps({"file": entry.file, "mutation": entry.mutation, "result": entry.result, "problems": problems})
