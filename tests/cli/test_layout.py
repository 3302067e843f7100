"""Tables at every width: each number is on one line, and no line is wider than the terminal."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.made_search import Means, compared, made_search

from holdout.cli.output import Tables
from search.results.comparison import Comparison
from search.show.comparison_tables import headline_tables, text_tables
from search.text_table import TextTable

WIDTHS = (60, 100, 200)
NUMBER = re.compile(r"[-+]?\d+\.\d+")


def numbers(text: str) -> list[str]:
    return sorted(NUMBER.findall(text))


def check(tables: Sequence[TextTable], width: int) -> None:
    """Every number of every cell is there as often as it should be, in lines that fit."""
    out = io.StringIO()
    Console(file=out, width=width).print(Tables(tables))
    shown = out.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    rows = [(table, row) for table in tables for row in table.rows]
    needed = [
        row[column] for table, row in rows for column in range(table.labels, len(row)) if column not in table.spare
    ]
    notes = " ".join(note for table in tables for note in table.notes)
    titles = " ".join(table.title for table in tables if table.rows)
    found = numbers(shown)
    for number in numbers(f"{' '.join(needed)} {notes} {titles}"):
        found.remove(number)  # fails where it is not there whole


OWN = "mylab.losses:CircleLoss"
LONG = "a-search-with-a-long-name"
MADE: dict[str, tuple[tuple[str, Means, dict[str, Any]], ...]] = {
    "one loss": (("one", {"mpa": (0.5, 0.6)}, {}),),
    "six losses": (("six", {f"{OWN}{number}": (0.3, 0.3 + number / 50) for number in range(6)}, {}),),
    "several searches": tuple(
        (name, {OWN: (0.3, 0.6), "mpa": (0.5, 0.5)}, {"tested": name != "sealed"}) for name in ("one", LONG, "sealed")
    ),
    "sealed": (("shut", {"pnp": (0.3, 0.6)}, {"tested": False}),),
    "folds": (("folds", {"pnp": (0.3, 0.6), "mpa": (0.1, 0.2)}, {"folds": 4}),),
}
"""Kind of comparison -> the names, means and options of its searches."""


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("tables", [text_tables, headline_tables])
def test_numbers_are_whole_at_every_width(
    kind: str, tables: Callable[[Comparison], list[TextTable]], tmp_path: Path
) -> None:
    for name, means, options in MADE[kind]:
        made_search(tmp_path, name, means, **options)
    comparison = compared(tmp_path, *(name for name, *_ in MADE[kind]))
    for width in WIDTHS:
        check(tables(comparison), width)
