"""Commands for disk space: `disk`, `remove`."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from holdout.cli.options import RUNS, AnyName, Json, Runs
from holdout.cli.output import Tables, say, show
from search import records  # whose modules load on first use
from search.text_table import TextTable
from search.trust import started
from trainables.common.errors import InvalidInput, counted

KEPT = "The ledger of test openings and MLflow's runs are kept."


def disk(
    trim: Annotated[
        bool,
        typer.Option("--trim", help="First remove decoded images beyond the limit that no search here uses."),
    ] = False,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Show the disk usage of searches and decoded images, largest first, and the free space."""
    trimmed = _trim(runs) if trim else []
    entries, free = records.measure_disk(runs), records.free_bytes(runs)
    total = sum(entry.size for entry in entries)
    table = TextTable(
        title=f"Disk usage of {runs} and of decoded images",
        header=("name", "kind", "size", ""),
        rows=tuple((entry.name, entry.kind, decimal(entry.size), entry.note) for entry in entries),
        labels=2,
        prose=(3,),
        notes=(
            f"total {decimal(total)}; {decimal(free)} free in {runs}; `holdout remove NAME` removes a search, `holdout "
            "disk --trim` decoded images beyond the limit",
        ),
    )
    record = {"entries": [asdict(entry) for entry in entries], "free": free, "total": total}
    show(record | ({"trimmed": trimmed} if trim else {}), as_json, lambda: Tables([table]))


def _trim(runs: Path) -> list[dict[str, Any]]:
    """Remove decoded images beyond the limit that no search on this machine uses, and return what was removed."""
    from trainables.data.store.cache import make_room

    trimmed = []
    # The file of somebody else's search may name any folder as its cache.
    for cache in records.caches_of(run for run in records.find_runs(runs) if started(run.path) is not None):
        removed = make_room(cache)
        freed = sum(store.size for store in removed)
        trimmed.append({"cache": str(cache), "removed": [str(store.path) for store in removed], "freed": freed})
        say([f"{cache}: {counted(len(removed), 'image store')} removed, {decimal(freed)} freed."])
    return trimmed


def remove(
    name: AnyName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Remove the folder of a search, or of a campaign and its searches: studies, checkpoints and results."""
    removal = records.plan_removal(runs, name)
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput(f"`holdout remove {name}` asks for confirmation, but there is no terminal; add --yes.")
        say(_question(removal))
        if not typer.confirm("Remove it?", err=True):
            say(["Nothing was removed."])
            raise typer.Exit(1)
    removal.carry_out()
    if yes:  # otherwise the question said it
        say(removal.kept)
    searches = [folder.name for folder in removal.searches]
    record = {"name": name, "searches": searches, "size": removal.size, "kept": removal.kept}
    show(record, as_json, lambda: f"{name} was removed, {decimal(removal.size)}. {KEPT}")


def _question(removal: "records.Removal") -> list[str]:
    name = removal.folder.name
    sentences = [f"{name} takes {decimal(removal.size)}, all of which will be permanently removed."]
    if removal.folder not in removal.searches:
        searches = ", ".join(folder.name for folder in removal.searches)
        sentences.append(f"It is a campaign; its searches will be removed too: {searches or 'none'}.")
    return [*sentences, *removal.kept, KEPT]
