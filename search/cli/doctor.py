"""``holdout doctor``: what this machine can do."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search.cli.options import RUNS, Json, Runs, Settings
from search.cli.output import show

if TYPE_CHECKING:
    from rich.table import Table

    from search.cluster.doctor import CheckResult

STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}


def doctor(
    file: Annotated[
        Path | None, typer.Argument(metavar="[SEARCH.yaml]", help="A search file, or a recipe's name.")
    ] = None,
    settings: Settings = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Look at this machine, and at what a search would need; exit code 1 where something is missing."""
    from dataclasses import asdict

    from search.cluster.doctor import examine
    from search.config.recipes import read_search
    from search.config.search_config import parse_config

    config = parse_config(read_search(file, settings or [])) if file else None
    results = list(examine(config, runs))
    show("" if as_json else _table(results), [asdict(result) for result in results], as_json)
    if any(result.state == "failed" for result in results):
        raise typer.Exit(1)


def _table(results: list["CheckResult"]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for result in results:
        text = f"{result.found}. {result.mend}" if result.mend else result.found
        table.add_row(result.check, Text(result.state, style=STYLES[result.state]), Text(text))
    return table
