"""Tables of text at the width of a terminal: no number is cut or broken, however narrow it is.

A table that is too wide is shown as a few narrower ones below each other, each with the labels of its rows. Where that
would be many, each row becomes a block with a line a cell.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from search.report.tables.text_table import TextTable

GAP = 2
"""Blanks between two columns."""

MOST_PARTS = 3
"""A table in more parts is harder to read than a block a row."""

PROSE = 24
"""Sentences have at least so many columns, or the width that they need."""


class LaidOut:
    """Tables that are laid out when the width is known."""

    def __init__(self, tables: Sequence[TextTable]) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The tables, each with its title and its notes."""
        for table in self._tables:
            if table.rows:
                if table.title:
                    yield Text(table.title, style="italic")
                    yield Text()
                for part in _laid_out(table, options.max_width):
                    yield part
                    yield Text()
            for note in table.notes:
                yield Text(note, style="dim")
            if table.notes:
                yield Text()


def _laid_out(table: TextTable, width: int) -> Iterator[RenderableType]:
    parts = _parts(table, width)
    if parts is None:
        yield from (Group(*_block(table, row, width)) for row in table.rows)
    else:
        for columns in parts:
            yield _grid(table, columns)


def _parts(table: TextTable, width: int) -> list[list[int]] | None:
    """The columns of each part, as many as fit beside the labels; None where that would be too many parts.

    Spare columns are only shown where all is one part.
    """
    columns = range(table.labels, len(table.header))
    whole = _as_parts(table, columns, width)
    if whole is None or len(whole) > 1:
        whole = _as_parts(table, [column for column in columns if column not in table.spare], width)
    return whole if whole and len(whole) <= MOST_PARTS else None


def _as_parts(table: TextTable, columns: Sequence[int], width: int) -> list[list[int]] | None:
    """The same of some columns, however many parts there are; None where a column does not fit beside the labels."""
    widths = [_least_width(table, column) for column in range(len(table.header))]
    labels = sum(widths[: table.labels]) + GAP * (table.labels - 1)
    parts: list[list[int]] = []
    taken = width
    for column in columns:
        needed = GAP * bool(table.labels) + widths[column]
        if taken + needed > width:
            parts.append([])
            taken = labels
        if taken + needed > width:
            return None
        parts[-1].append(column)
        taken += needed
    return parts


def _least_width(table: TextTable, column: int) -> int:
    cells = [table.header[column], *(row[column] for row in table.rows)]
    whole = max(cell_len(line) for cell in cells for line in cell.split("\n"))
    if column not in table.prose:
        return whole
    return min(whole, max(PROSE, *(cell_len(word) for cell in cells for word in cell.split() or [""])))


def _grid(table: TextTable, columns: Sequence[int]) -> Table:
    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    shown = [*range(table.labels), *columns]
    for column in shown:
        is_text = column < table.labels or column in table.prose
        least = _least_width(table, column)
        justify, wraps = "left" if is_text else "right", column in table.prose
        grid.add_column(Text(table.header[column]), justify=justify, no_wrap=not wraps, min_width=least)  # type: ignore[arg-type]
    for cells in _without_repeats(table):
        grid.add_row(*(Text(cells[column]) for column in shown))
    return grid


def _without_repeats(table: TextTable) -> Iterator[tuple[str, ...]]:
    """The rows; labels that a row shares with the one above are left out, but never its last."""
    yield from table.rows[:1]
    for above, row in pairwise(table.rows):
        same = 0
        while same < table.labels - 1 and row[same] == above[same]:
            same += 1
        yield (*("" for _ in range(same)), *row[same:])


def _block(table: TextTable, row: Sequence[str], width: int) -> Iterator[RenderableType]:
    """A row's labels, and below them its values: each beside its heading where it fits, and else under it."""
    if table.labels:
        yield Text(", ".join(row[: table.labels]), style="bold")
    columns = [column for column in range(table.labels, len(table.header)) if column not in table.spare]
    headings = [table.header[column].replace("\n", " ") for column in columns]
    room = max(map(cell_len, headings)) + GAP
    for heading, cell in zip(headings, (row[column] for column in columns), strict=True):
        if GAP + room + max(map(cell_len, cell.split("\n"))) <= width:
            grid = Table.grid(padding=(0, 0, 0, GAP))
            grid.add_column(min_width=room)
            grid.add_column(no_wrap=True)
            grid.add_row(Text(heading), Text(cell))
            yield grid
        else:
            yield Padding(Text(heading), (0, 0, 0, GAP))
            yield Padding(Text(cell), (0, 0, 0, 2 * GAP))
