"""Tables at every width: each number is on one line, and no line is wider than the terminal."""

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.made_search import Means, made_search

from holdout.cli.output import Tables
from search.records.records import Records
from search.records.runs import RunFolder
from search.results.comparison import Comparison, compare
from search.show.comparison_tables import headline_tables, text_tables
from search.text_table import TextTable

WIDTHS = (60, 100, 200)
NUMBER = re.compile(r"[-+]?\d+\.\d+")


def printed(tables: Sequence[TextTable], width: int) -> str:
    """Return the tables as printed on a terminal of this width."""
    out = io.StringIO()
    Console(file=out, width=width).print(Tables(tables))
    return out.getvalue()


def numbers(text: str) -> list[str]:
    return sorted(NUMBER.findall(text))


def check(tables: Sequence[TextTable], width: int) -> str:
    """Every number of every cell is there as often as it should be, in lines that fit."""
    shown = printed(tables, width)
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
    return shown


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


def compared(runs: Path, names: Sequence[str]) -> Comparison:
    folders = [RunFolder(runs, name) for name in names]
    return compare([*map(Records, folders)])


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("tables", [text_tables, headline_tables])
def test_numbers_are_whole_at_every_width(
    kind: str, tables: Callable[[Comparison], list[TextTable]], tmp_path: Path
) -> None:
    for name, means, options in MADE[kind]:
        made_search(tmp_path, name, means, **options)
    comparison = compared(tmp_path, [name for name, *_ in MADE[kind]])
    for width in WIDTHS:
        check(tables(comparison), width)


def test_a_wide_terminal_has_one_table_and_a_narrow_one_several() -> None:
    table = TextTable(
        title="t",
        header=("loss", *(f"metric {number}\ntest" for number in range(6))),
        rows=(("mpa", *(f"0.{number}234 ± 0.0001" for number in range(6))),),
        labels=1,
    )
    headings = {width: printed([table], width).count("loss") for width in (200, 80, 50)}
    assert headings == {200: 1, 80: 2, 50: 3}
    narrow = check([table], 36)
    assert "loss" not in narrow
    assert re.search(r"metric 5 test +0\.5234 ± 0\.0001", narrow), "a block a row"


def test_sentences_are_wrapped_between_words_and_labels_are_not_repeated() -> None:
    table = TextTable(
        title="",
        header=("search", "trial", "value", "outcome"),
        rows=tuple(("long", str(number), "0.5000", "pruned after epoch 2: " + "word " * 12) for number in range(2)),
        labels=2,
        prose=(3,),
    )
    shown = check([table], 60)
    assert shown.count("long") == 1
    assert shown.count("pruned after") == 2
    assert len(shown.splitlines()) > 6


def test_a_default_that_is_best_is_one_row(tmp_path: Path) -> None:
    made_search(tmp_path, "best", {"pnp": (0.3, 0.6), "mpa": (0.5, 0.5)})
    path = tmp_path / "best" / "summary.json"
    content = json.loads(path.read_text())
    entry = content["losses"]["mpa"]
    entry["tuned"]["number"] = 0
    for stage in ("confirmed", "final", "test"):
        entry["default"][stage] = entry["tuned"][stage]
    path.write_text(json.dumps(content))
    comparison = compared(tmp_path, ["best"])
    for tables in (headline_tables, text_tables):
        rows = [row[:2] for row in tables(comparison)[1].rows]
        assert rows == [("chance", "–"), ("pnp", "0, default"), ("pnp", "7, tuned"), ("mpa", "default is best")]
