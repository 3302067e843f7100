"""The command compare, and how a comparison looks on a terminal."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from search.cli.output import RUNS, Json, Runs, show
from search.comparison import compare as compare_searches
from search.export import refuse_unknown, write_comparison
from search.runs import RunFolder, existing_run
from search.sheets import Sheet, sheets
from trainables.mistakes import Mistakes


def compare(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Searches of one split.")],
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", metavar="FILE", help="Write the same to a .csv, .md or .tex file; can be repeated."),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """The losses of searches beside each other, and which of them differ."""
    refuse_unknown(output or [])
    folders = [existing_run(runs, name) for name in dict.fromkeys(names)]
    comparison = compare_searches(folders, [_summary(folder) for folder in folders])
    for path in output or []:
        write_comparison(path, comparison)
    show(render(comparison), comparison, as_json)


def _summary(folder: RunFolder) -> dict[str, Any]:
    if not folder.summary.exists():
        raise Mistakes(
            f"The search {folder.name} has no result yet; `holdout status {folder.name}` says how far it is."
        )
    content: dict[str, Any] = json.loads(folder.summary.read_text())
    return content


def render(comparison: Mapping[str, Any]) -> RenderableType:
    """A comparison for a terminal."""
    return Group(*(part for sheet in sheets(comparison) for part in _parts(sheet)))


def _parts(sheet: Sheet) -> list[RenderableType]:
    table = Table(title=sheet.title, title_justify="left", box=SIMPLE_HEAD)
    for position, heading in enumerate(sheet.header):
        is_label = position < sheet.labels
        table.add_column(heading, justify="left" if is_label else "right", no_wrap=is_label)
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    notes = [Text(note, style="dim") for note in sheet.notes]
    return [table, *notes, Text()] if sheet.rows else [*notes, Text()]
