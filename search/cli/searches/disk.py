"""The commands about room on disk: disk, remove."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import RUNS, Json, Name, Runs
from search.cli.output import say
from search.cli.output import show as show_result

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType
    from rich.table import Table

    from search.plan.disk.disk_usage import DiskUsage
    from search.plan.disk.image_cache import StoreUsage
    from search.stages.removal import Removal

KEPT = "The ledger of test openings and MLflow's runs stay, for what was seen stays seen."


def disk(runs: Runs = RUNS, as_json: Json = False) -> None:
    """What searches and decoded images take, the largest first, and what is free."""
    from search.plan.disk.disk_usage import measure_disk

    usage = measure_disk(runs)
    show_result("" if as_json else _rendered(runs, usage), _record(usage), as_json)


def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Remove a search, or a campaign with its searches: folder, checkpoints and studies."""
    from rich.filesize import decimal

    from search.stages.removal import names_of, plan_removal
    from trainables.mistakes import Mistakes

    removal = plan_removal(runs, name)
    if not yes:
        if not sys.stdin.isatty():
            raise Mistakes(f"`holdout remove {name}` asks before it removes, and there is no terminal; give it --yes.")
        say(_question(removal))
        if not typer.confirm("Remove it?", err=True):
            say(["Nothing is removed."])
            raise typer.Exit(1)
    removal.carry_out()
    show_result(
        f"{name} is removed, {decimal(removal.size)}. {KEPT}",
        {"name": name, "searches": names_of(removal.searches), "size": removal.size},
        as_json,
    )


def _record(usage: "DiskUsage") -> dict[str, Any]:
    from dataclasses import asdict

    entries = [{**asdict(entry), "total": entry.total} for entry in usage.entries]
    return {**asdict(usage), "entries": entries, "total": usage.total}


def _question(removal: "Removal") -> list[str]:
    """What will be gone, in sentences."""
    from rich.filesize import decimal

    from search.stages.removal import names_of

    name = removal.folder.name
    sentences = [f"{name} takes {decimal(removal.size)}, all of which will be removed for good."]
    if removal.is_campaign:
        names = names_of(removal.searches)
        sentences.append(f"It is a campaign, and its {len(names)} searches go with it: {', '.join(names) or 'none'}.")
    for search in removal.searches:
        parts = {"studies": search.usage.studies, "checkpoints": search.usage.checkpoints, "tests": search.usage.tests}
        shown = ", ".join(f"{part} {decimal(size)}" for part, size in parts.items() if size)
        sentences.append(f"{search.folder.path}: {decimal(search.usage.size)}{f' ({shown})' if shown else ''}.")
        if search.usage.elsewhere:
            sentences.append(f"{search.usage.elsewhere.address}: {decimal(search.usage.elsewhere.size or 0)}.")
        if search.shared and search.shared.names:
            sentences.append(f"{search.shared.shown}: the studies {', '.join(search.shared.names)}.")
    return [*sentences, KEPT]


def _rendered(runs: "Path", usage: "DiskUsage") -> "RenderableType":
    from rich.console import Group
    from rich.filesize import decimal
    from rich.text import Text

    notes = [
        f"{entry.name}: checkpoints in {entry.elsewhere.address}"
        + (f", which cannot be looked at ({entry.elsewhere.problem})" if entry.elsewhere.problem else "")
        for entry in usage.entries
        if entry.elsewhere
    ]
    free = [f"{decimal(usage.free_runs)} free in {runs}", f"{decimal(usage.free_cache)} free in the image cache"]
    summary = f"together {decimal(usage.total)}; {'; '.join(free)}; `holdout remove NAME` removes a search"
    return Group(
        _entries(runs, usage),
        *(Text(note, style="dim") for note in notes),
        Text(),
        _stores(usage.stores),
        Text(summary),
    )


def _entries(runs: "Path", usage: "DiskUsage") -> "Table":
    from rich.filesize import decimal

    table = _table(
        f"Searches in {runs}" if usage.entries else f"There is nothing in {runs}.",
        name="left", kind="left", total="right", studies="right", checkpoints="right", test="right", elsewhere="right",
    )  # fmt: skip
    for entry in usage.entries:
        away = "" if entry.elsewhere is None else "?" if entry.elsewhere.size is None else decimal(entry.elsewhere.size)
        parts = [decimal(size) if size else "" for size in (entry.studies, entry.checkpoints, entry.tests)]
        table.add_row(entry.name, entry.kind.value, decimal(entry.total), *parts, away)
    return table


def _stores(stores: "tuple[StoreUsage, ...]") -> "Table":
    from pathlib import Path

    from rich.filesize import decimal
    from rich.text import Text

    caches = ", ".join(dict.fromkeys(str(Path(store.path).parent) for store in stores))
    table = _table(
        f"Decoded images in {caches}" if stores else "There are no decoded images.",
        store="left", dataset="left", classes="right", images="right", pixels="right", size="right", searches="left",
    )  # fmt: skip
    for store in stores:
        numbers = ("–" if value is None else f"{value:,}" for value in (store.classes, store.images, store.short_side))
        whole = "unfinished" if store.images is None else store.dataset or "unknown"
        used = Text(", ".join(store.searches) or "none here")
        table.add_row(Path(store.path).name[:12], Text(whole), *numbers, decimal(store.size), used)
    return table


def _table(title: str, **columns: Any) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for name, justify in columns.items():
        table.add_column(name, justify=justify, overflow="fold")
    return table
