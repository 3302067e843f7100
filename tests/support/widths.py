"""Printing tables at a terminal width, and checking that no number is broken."""

import io
import re
from collections.abc import Sequence

from rich.console import Console

from search.cli.output import Tables
from search.text_table import TextTable

WIDTHS = (60, 80, 100, 120, 200)
NUMBER = re.compile(r"[-+]?\d+\.\d+")


def printed(tables: Sequence[TextTable], width: int) -> str:
    """Return the tables as printed on a terminal of this width."""
    out = io.StringIO()
    Console(file=out, width=width).print(Tables(tables))
    return out.getvalue()


def numbers(text: str) -> list[str]:
    return sorted(NUMBER.findall(text))


def _needed(table: TextTable, row: Sequence[str]) -> list[str]:
    return [cell for column, cell in enumerate(row) if column >= table.labels and column not in table.spare]


def check(tables: Sequence[TextTable], width: int) -> str:
    """Every number of every cell is there as often as it should be, in lines that fit."""
    shown = printed(tables, width)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    cells = " ".join(cell for table in tables for row in table.rows for cell in _needed(table, row))
    notes = " ".join(note for table in tables for note in table.notes)
    titles = " ".join(table.title for table in tables if table.rows)
    found = numbers(shown)
    for number in numbers(f"{cells} {notes} {titles}"):
        found.remove(number)  # fails where it is not there whole
    return shown
