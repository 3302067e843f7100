"""Where the command line speaks: results on standard output, everything else on standard error."""

import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.logging import RichHandler

results = Console(width=None if sys.stdout.isatty() else 120)  # a file or a pipe has no width of its own
messages = Console(stderr=True)

Runs = Annotated[Path, typer.Option("--runs", help="The folder of all searches.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
RUNS = Path("runs")


def show(rendered: RenderableType, value: Any, as_json: bool) -> None:
    """Print a result, for people or for programs."""
    if as_json:
        print(json.dumps(value, indent=2, allow_nan=False))
    else:
        results.print(rendered)


def set_up_logging() -> None:
    """Our own warnings reach the terminal; libraries' do not talk into it."""
    handler = RichHandler(console=messages, show_time=False, show_path=False, markup=False)
    logging.basicConfig(level=logging.ERROR, format="%(message)s", handlers=[handler], force=True)
    for package in ("search", "spaces", "trainables"):
        logging.getLogger(package).setLevel(logging.WARNING)
