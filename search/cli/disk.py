"""Commands for disk space: `disk`, `remove`, `trim`."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import RUNS, Json, Name, Runs, Trust
from search.cli.output import Tables, say, show

if TYPE_CHECKING:
    from pathlib import Path

    from search.driver.removal import Removal
    from search.plan.disk_usage import DiskUsage, StoreUsage
    from search.report.text_table import TextTable


KEPT = "The ledger of test openings and MLflow's runs are kept."


def disk(runs: Runs = RUNS, trust: Trust = None, as_json: Json = False) -> None:
    """Show the disk usage of searches and decoded images, largest first, and the free space."""
    from search.plan.disk_usage import measure_disk

    usage = measure_disk(runs)
    show(_record(usage), as_json, lambda: Tables(_tables(runs, usage)))


def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    runs: Runs = RUNS,
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Remove a search, or a campaign with its searches: folder, checkpoints and studies."""
    from rich.filesize import decimal

    from search.driver.removal import names_of, plan_removal
    from trainables.mistakes import Mistakes

    removal = plan_removal(runs, name)
    if not yes:
        if not sys.stdin.isatty():
            raise Mistakes(f"`holdout remove {name}` asks for confirmation, but there is no terminal; add --yes.")
        say(_question(removal))
        if not typer.confirm("Remove it?", err=True):
            say(["Nothing was removed."])
            raise typer.Exit(1)
    removal.carry_out()
    kept = [sentence for search in removal.searches for sentence in search.kept]
    if yes:  # otherwise the question said it
        say(kept)
    record = {"name": name, "searches": names_of(removal.searches), "size": removal.size, "kept": kept}
    show(record, as_json, lambda: f"{name} was removed, {decimal(removal.size)}. {KEPT}")


def trim(
    to: Annotated[
        float | None,
        typer.Option("--to", min=0, metavar="GB", help="The size to keep; default HOLDOUT_CACHE_GB, or half the disk."),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Remove decoded images that no search on this machine uses, least recently used first."""
    from rich.filesize import decimal

    from search.plan.disk_usage import caches_of
    from search.plan.runs import find_runs
    from search.trust import started
    from trainables.data.store.cache import is_used, limit_of, make_room, stores_in

    limit = None if to is None else round(to * 1e9)
    records, sentences = [], []
    # The file of somebody else's search may name any folder as its cache.
    for cache in caches_of(run for run in find_runs(runs) if started(run.path)):
        removed = make_room(cache, limit=limit)
        left = stores_in(cache)
        size, freed = sum(store.size for store in left), sum(store.size for store in removed)
        in_use = sum(store.size for store in left if is_used(store.path))
        may = limit_of(cache) if limit is None else limit
        records.append(
            {"cache": str(cache), "limit": may, "removed": [str(store.path) for store in removed], "freed": freed}
            | {"size": size, "in_use": in_use}
        )
        used = f", {decimal(in_use)} of it in use" if in_use else ""
        sentences.append(
            f"{cache}: {len(removed)} image store{'' if len(removed) == 1 else 's'} removed, {decimal(freed)} freed; "
            f"{decimal(size)} left{used} (limit {decimal(may)})."
        )
    show(records, as_json, lambda: "\n".join(sentences))


def _record(usage: "DiskUsage") -> dict[str, Any]:
    from dataclasses import asdict

    entries = [{**asdict(entry), "total": entry.total} for entry in usage.entries]
    return {**asdict(usage), "entries": entries, "total": usage.total}


def _question(removal: "Removal") -> list[str]:
    """Return the sentences that say what will be removed."""
    from rich.filesize import decimal

    from search.driver.removal import names_of

    name = removal.folder.name
    sentences = [f"{name} takes {decimal(removal.size)}, all of which will be permanently removed."]
    if removal.is_campaign:
        names = names_of(removal.searches)
        count = f"{len(names)} search{'' if len(names) == 1 else 'es'}"
        sentences.append(f"It is a campaign of {count}, which will be removed too: {', '.join(names) or 'none'}.")
    for search in removal.searches:
        parts = {"studies": search.usage.studies, "checkpoints": search.usage.checkpoints, "tests": search.usage.tests}
        shown = ", ".join(f"{part} {decimal(size)}" for part, size in parts.items() if size)
        sentences.append(f"{search.folder.path}: {decimal(search.usage.size)}{f' ({shown})' if shown else ''}.")
        if search.usage.elsewhere:
            sentences.append(f"{search.usage.elsewhere.address}: {decimal(search.usage.elsewhere.size or 0)}.")
        if search.shared and search.shared.names:
            sentences.append(f"{search.shared.shown}: the studies {', '.join(search.shared.names)}.")
        sentences += search.kept
    return [*sentences, KEPT]


def _tables(runs: "Path", usage: "DiskUsage") -> "list[TextTable]":
    from rich.filesize import decimal

    from search.report.text_table import TextTable

    free = [f"{decimal(usage.free_runs)} free in {runs}", f"{decimal(usage.free_cache)} free in the image cache"]
    summary = (
        f"total {decimal(usage.total)}; {'; '.join(free)}; `holdout remove NAME` removes a search, `holdout trim` "
        f"decoded images beyond {decimal(usage.cache_limit)}"
    )
    end = TextTable(title="", header=(), rows=(), labels=0, notes=(summary,))
    return [_entries(runs, usage), _stores(usage.stores), end]


def _entries(runs: "Path", usage: "DiskUsage") -> "TextTable":
    from rich.filesize import decimal

    from search.report.text_table import TextTable

    rows, notes = [], []
    for entry in usage.entries:
        away = "" if entry.elsewhere is None else "?" if entry.elsewhere.size is None else decimal(entry.elsewhere.size)
        parts = [decimal(size) if size else "" for size in (entry.studies, entry.checkpoints, entry.tests)]
        rows.append((entry.name, entry.kind.value, decimal(entry.total), *parts, away))
        if entry.elsewhere:
            problem = f", which cannot be read ({entry.elsewhere.problem})" if entry.elsewhere.problem else ""
            notes.append(f"{entry.name}: checkpoints in {entry.elsewhere.address}{problem}")
    return TextTable(
        title=f"Searches in {runs}",
        header=("name", "kind", "total", "studies", "checkpoints", "test", "elsewhere"),
        rows=tuple(rows),
        labels=2,
        notes=tuple(notes) if rows else (f"There is nothing in {runs}.",),
    )


def _stores(stores: "tuple[StoreUsage, ...]") -> "TextTable":
    from pathlib import Path

    from rich.filesize import decimal

    from search.report.text_table import NOTHING, TextTable

    caches = ", ".join(dict.fromkeys(str(Path(store.path).parent) for store in stores))
    rows = []
    for store in stores:
        numbers = (store.classes, store.images, store.short_side)
        whole = "unfinished" if store.images is None else store.dataset or "unknown"

        used = "in use" if store.in_use else time.strftime("%Y-%m-%d %H:%M", time.localtime(store.used))
        counts = [NOTHING if value is None else f"{value:,}" for value in numbers]
        rows.append((Path(store.path).name[:12], whole, *counts, decimal(store.size), used))
    return TextTable(
        title=f"Decoded images in {caches}",
        header=("store", "dataset", "classes", "images", "pixels", "size", "last used"),
        rows=tuple(rows),
        labels=2,
        notes=() if rows else ("There are no decoded images.",),
    )
