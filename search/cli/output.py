"""Where the command line speaks: results on standard output, everything else on standard error."""

import json
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from search.config.secrets import without_password

if TYPE_CHECKING:  # rich is imported by the first thing that is printed
    from rich.console import RenderableType

    from search.cli.terminal import Terminal
    from search.report.tables.text_table import TextTable


def _results() -> "Terminal":
    from search.cli.terminal import Terminal

    # A file or a pipe has no width of its own; rich reads COLUMNS where it is given none.
    return Terminal(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120, emoji=False)


@cache
def messages() -> "Terminal":
    """What speaks to people beside the result."""
    from search.cli.terminal import Terminal

    return Terminal(stderr=True, emoji=False)  # mylab:loss:x is no picture


def show(rendered: "RenderableType", value: Any, as_json: bool) -> None:
    """Print a result, for people or for programs."""
    if as_json:
        print(json.dumps(value, indent=2, allow_nan=False))
    else:
        _results().print(rendered)


def show_line(text: str) -> None:
    """Print one line of a result, however long."""
    _results().print(text, highlight=False, markup=False, soft_wrap=True)


def say(sentences: Sequence[str], style: str | None = None) -> None:
    """Print sentences beside the result."""
    for sentence in sentences:
        messages().print(_fit_to_show(sentence), style=style, highlight=False, markup=False, soft_wrap=True)


def _fit_to_show(text: str) -> str:
    """``text`` without passwords, nor what moves a cursor or turns writing round: names may come from anyone."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in without_password(text)
    )


def rendered(tables: Sequence["TextTable"]) -> "RenderableType":
    """Tables for a terminal of any width."""
    from search.cli.layout import LaidOut

    return LaidOut(tables)


def set_up_logging() -> None:
    """Our own warnings reach the terminal; libraries' do not talk into it."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s", handlers=[_Handler()], force=True)
    for package in ("search", "spaces", "trainables"):
        logging.getLogger(package).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # what it cannot decode is refused with its reason


class _Handler(logging.Handler):
    """Rich's handler, imported with the first message."""

    def emit(self, record: logging.LogRecord) -> None:
        from rich.logging import RichHandler

        RichHandler(console=messages(), show_time=False, show_path=False, markup=False).emit(record)
