"""Where the command line speaks: results on standard output, everything else on standard error."""

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.logging import RichHandler
from rich.table import Table
from rich.text import Text

from search.report.tables.text_table import TextTable

results = Console(width=None if sys.stdout.isatty() else 120)  # a file or a pipe has no width of its own
messages = Console(stderr=True)

Runs = Annotated[Path, typer.Option("--runs", help="The folder of all searches.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Output = Annotated[
    list[Path] | None,
    typer.Option("--output", metavar="FILE", help="Write the same to a .csv, .md or .tex file; can be repeated."),
]
RUNS = Path("runs")


def show(rendered: RenderableType, value: Any, as_json: bool) -> None:
    """Print a result, for people or for programs."""
    if as_json:
        print(json.dumps(value, indent=2, allow_nan=False))
    else:
        results.print(rendered)


def rendered(text_tables: Sequence[TextTable]) -> RenderableType:
    """Sheets for a terminal."""
    return Group(*(part for text_table in text_tables for part in _parts(text_table)))


def _parts(text_table: TextTable) -> list[RenderableType]:
    table = Table(title=text_table.title, title_justify="left", box=SIMPLE_HEAD)
    for position, heading in enumerate(text_table.header):
        is_label = position < text_table.labels
        table.add_column(heading, justify="left" if is_label else "right", no_wrap=is_label)
    for row in text_table.rows:
        table.add_row(*map(Text, row))
    notes = [Text(note, style="dim") for note in text_table.notes]
    return [table, *notes, Text()] if text_table.rows else [*notes, Text()]


def set_up_logging() -> None:
    """Our own warnings reach the terminal; libraries' do not talk into it."""
    handler = RichHandler(console=messages, show_time=False, show_path=False, markup=False)
    logging.basicConfig(level=logging.ERROR, format="%(message)s", handlers=[handler], force=True)
    for package in ("search", "spaces", "trainables"):
        logging.getLogger(package).setLevel(logging.WARNING)
