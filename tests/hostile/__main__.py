"""``python -m hostile``: hostile and odd input, and mutations drawn from a seed; ends with 1 if any did harm.

Every input runs in a process of its own. ``log.jsonl`` in the folder has a line for each, with what it did.
"""

import argparse
import importlib
import itertools
import json
import pkgutil
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from hostile.inputs import of_file, of_job
from hostile.mutations import as_json, mutations
from hostile.observed import observe
from hostile.world import World, free_of_threads

COLUMNS = ("executed", "contacted", "outside", "told", "hung", "traceback", "memory")
GENERATORS = (*[of_file] * 10, of_job)
HEAVY = ("torch", "torchvision", "mlflow", "optuna", "faiss", "sqlalchemy", "fastapi", "PIL.Image", "scipy.stats")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=300, help="how many hostile inputs")
    parser.add_argument("--mutations", type=int, default=500, help="how many mutations of a finished search")
    parser.add_argument("--folder", type=Path, help="where log.jsonl and the inputs that did harm are kept")
    given = parser.parse_args(arguments)
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="holdout-attack-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=120)
    console.print(f"Seed {given.seed}; {folder}", highlight=False, soft_wrap=True)
    import_everything()
    assert free_of_threads(), "an imported library started a thread; a fork would not be safe"
    world = World(folder / "world")
    start = time.monotonic()
    try:
        world.begin()
        harmed = attack(world, given.seed, given.inputs, folder, console)
        missed = mutate(world, given.seed, given.mutations, folder, console)
    finally:
        world.end()
    console.print(f"{time.monotonic() - start:.0f} s.")
    return int(harmed or missed)


def import_everything() -> None:
    """Import the product and its libraries, so that a forked command begins at once."""
    for name in HEAVY:
        importlib.import_module(name)
    for package in ("search", "trainables", "spaces"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if "ray" not in module.name and not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def attack(world: World, seed: int, count: int, folder: Path, console: Console) -> bool:
    """Run ``count`` attacks and print a table of them; return True if one did harm."""
    counts: dict[str, Counter[str]] = {}
    draw = random.Random(seed)
    with (folder / "log.jsonl").open("w") as log:
        for number, kind in enumerate(itertools.islice(itertools.cycle(GENERATORS), count)):
            entry = kind(world, draw)
            place = folder / "inputs" / f"{number:04d}"
            place.mkdir(parents=True)
            entry.prepare(place)
            seen = observe(entry.action, place, world, may_contact=entry.may_contact)
            counts.setdefault(entry.kind, Counter()).update(["inputs", f"exit code {seen.code}", *seen.problems])
            line = {"input": number, "attack": entry.name, "code": seen.code, "problems": seen.problems}
            log.write(json.dumps({**line, "seconds": round(seen.seconds, 2)}) + "\n")
            if seen.problems:
                console.print(f"{number:04d} {entry.name!r}: {seen.problems}", markup=False, highlight=False)
            else:
                shutil.rmtree(place)
    show(counts, ("inputs", "exit code 1", "exit code 2", *COLUMNS), console)
    return any(found[column] for found in counts.values() for column in COLUMNS)


def mutate(world: World, seed: int, count: int, folder: Path, console: Console) -> bool:
    """Mutate a search's records ``count`` times and print a table by kind of file; return True if one is missed."""
    counts: dict[str, Counter[str]] = {}
    with (folder / "mutations.jsonl").open("w") as log:
        for entry in mutations(world, seed, count, folder / "mutated"):
            harm = [name for name in ("hung", "traceback") if name in entry.observed.problems]
            counts.setdefault(entry.kind, Counter()).update(["mutations", entry.result, *harm])
            log.write(as_json(entry) + "\n")
            if entry.result == "missed" or harm:
                console.print(as_json(entry), markup=False, highlight=False, soft_wrap=True)
    columns = ("mutations", "caught", "harmless", "missed", "hung", "traceback")
    show(counts, columns, console)
    return any(found[column] for found in counts.values() for column in columns[3:])


def show(counts: Mapping[str, Counter[str]], columns: Sequence[str], console: Console) -> None:
    """Print the counts by kind of file, and their sum."""
    table = Table("file", *(Column(column, justify="right") for column in columns), box=None, header_style="bold")
    for kind, found in {**counts, "all": sum(counts.values(), Counter())}.items():
        table.add_row(kind, *(str(found[column]) for column in columns))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
