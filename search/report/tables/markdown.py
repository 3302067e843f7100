"""Tables of text as Markdown."""

import re
from collections.abc import Sequence

from search.report.tables.text_table import TextTable


def as_markdown(tables: Sequence[TextTable]) -> str:
    """Markdown tables with their notes."""
    return "\n".join(map(_markdown, tables))


def _markdown(table: TextTable) -> str:
    lines = [f"## {_escaped(table.title)}", ""]
    if table.rows:
        lines += [rows_as_markdown(table), ""]
    return "\n".join([*lines, *(f"- {_escaped(note)}" for note in table.notes), ""])


def rows_as_markdown(table: TextTable) -> str:
    """The rows alone, in columns of one width: they are read as well where Markdown is shown as it is written."""
    header, *rows = [[_escaped(cell) for cell in row] for row in (table.header, *table.rows)]
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * width if at < table.labels else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    lines = [
        [
            cell.ljust(width) if at < table.labels else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        for cells in (header, *rows)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (lines[0], rule, *lines[1:]))


def _escaped(text: str) -> str:
    """In one line: not everything that shows Markdown breaks a line within a cell."""
    return re.sub(r"([\\`*_|<])", r"\\\1", text).replace("\n", " ")
