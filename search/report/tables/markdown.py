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
        rule = ["---"] * table.labels + ["---:"] * (len(table.header) - table.labels)
        header, *rows = [[_escaped(cell) for cell in row] for row in (table.header, *table.rows)]
        lines += [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]
        lines.append("")
    return "\n".join([*lines, *(f"- {_escaped(note)}" for note in table.notes), ""])


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_|<])", r"\\\1", text).replace("\n", "<br>")
