"""Output of the commands: results on standard output, everything else on standard error."""

import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from io import TextIOWrapper
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from search.packages import PACKAGES
from search.text_table import TextTable
from trainables.common.errors import counted, printable, traced, without_password

if TYPE_CHECKING:
    from spaces.contract import CheckResult


def show(record: Any, as_json: bool, for_people: Callable[[], RenderableType]) -> None:
    """Print a result on standard output: ``record`` as JSON, or what ``for_people`` returns, a text as it is."""
    if as_json:
        print(json.dumps(record, indent=2, allow_nan=False))
    elif isinstance(found := for_people(), str):
        show_line(found)
    else:
        _results().print(found)


def stacked(entries: Iterable[Iterable[RenderableType]]) -> Group:
    """Return the parts of all entries, one below the other."""
    return Group(*chain.from_iterable(entries))


def aligned(rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return cells in columns without lines; the first column is not wrapped."""
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(no_wrap=True)
    for cells in rows:
        table.add_row(*(Text(cell, overflow="fold") if isinstance(cell, str) else cell for cell in cells))
    return table


def show_line(text: str) -> None:
    """Print text of a result on standard output; brackets are no markup, and lines are not wrapped."""
    _results().print(text, highlight=False, markup=False, soft_wrap=True)


def say(sentences: Iterable[str | None], style: str | None = None) -> None:
    for sentence in filter(None, sentences):
        messages().print(printable(sentence), style=style, highlight=False, markup=False, soft_wrap=True)


STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}


def shown_checks(results: Iterable["CheckResult"], as_json: bool) -> "list[CheckResult]":
    """Return the results of checks; unless it is for ``as_json``, print each as it comes, and then how many passed."""
    done = []
    for result in results:
        done.append(result)
        state = Text(result.state.ljust(max(map(len, STYLES))), style=STYLES[result.state])
        text = f"{result.found}. {result.fix}" if result.fix else result.found
        if not as_json:
            _results().print(aligned([(state, result.check.ljust(len("training vectors")), text)]))
    failed = [result.check for result in done if result.state == "failed"]
    warned = sum(result.state == "warning" for result in done)
    warnings = f", with {counted(warned, 'warning')}" if warned else ""
    passed = f"All {len(done)} checks passed{warnings}."
    if not as_json:
        say([f"{len(failed)} of {len(done)} checks failed: {' '.join(failed)}" if failed else passed])
    return done


_FORMAT = warnings.formatwarning


def set_up_logging() -> None:
    """Log this project's warnings to standard error, and of libraries only errors; make both streams take any text."""
    sys.stdout, sys.stderr = map(_any_text, (sys.stdout, sys.stderr))
    logging.basicConfig(level=logging.ERROR, format="%(message)s", handlers=[_Handler()], force=True)
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.WARNING)
    ignore_warnings_of_libraries()
    warnings.formatwarning = lambda *given, **more: without_password(_FORMAT(*given, **more))
    sys.excepthook = lambda kind, error, where: print(traced(error), file=sys.stderr)


def ignore_warnings_of_libraries() -> None:
    """Ignore warnings of libraries: unreadable images are mistakes, and PYTHONWARNINGS=error is for a user's code."""
    warnings.filterwarnings("ignore", module=r"(PIL|mlflow|sqlalchemy|alembic|optuna)\b")


def _any_text(stream: TextIO | None) -> TextIO:
    """Return a stream that takes any text, also if it is closed or its encoding is that of a locale (ISO-8859-1)."""
    stream = stream or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")
    return stream


class _Handler(logging.Handler):
    """Rich's handler, imported with the first message."""

    def emit(self, record: logging.LogRecord) -> None:
        from rich.logging import RichHandler

        record.msg, record.args = without_password(self.format(record)), None
        record.exc_info = record.exc_text = record.stack_info = None  # the text has them
        level = record.levelno > logging.INFO  # which is progress
        RichHandler(console=messages(), show_time=False, show_level=level, show_path=False, markup=False).emit(record)


# Terminals.

_CONTROL = re.compile(r"\x1b\[[\d;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Colour codes, control characters except tab and newline, and text-direction marks."""


OF_A_FILE, LEAST_WIDTH = 120, 20
"""The width of output to a file, and the least width of a terminal."""


class Terminal(Console):
    """Rich's console, which also strips control characters from user-supplied text such as names of classes."""

    def __init__(self, **options: Any) -> None:
        """Make the console; a width in which nothing can be read, as of ``COLUMNS=0``, is that of a file."""
        super().__init__(**options)
        if self.width < LEAST_WIDTH:
            self.width = OF_A_FILE

    # Rich gives them no width either, so the layout of a table does not change.
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield rich's segments, stripped; its own control segments stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_CONTROL.sub("", segment.text), segment.style)


def _results() -> Terminal:
    # A file or a pipe has no width. Rich uses COLUMNS if no width is given.
    return Terminal(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else OF_A_FILE, emoji=False)


@cache
def messages() -> Terminal:
    return Terminal(stderr=True, emoji=False)  # mylab:loss:x is not an emoji code


# Tables.

GAP = 2
"""Spaces between two columns."""

MOST_PARTS = 3
"""The maximum number of parts of a wide table; beyond it, a block per row is easier to read."""

PROSE = 24
"""The minimum width of a column of sentences, unless they are shorter."""


class Tables:
    """Tables of text, laid out for the width of the terminal. No number is cut or broken, however narrow it is.

    A table that is too wide is split into a few narrower ones below each other, each with the labels of its rows. If
    there would be more than :data:`MOST_PARTS`, each row becomes a block with one line per cell.
    """

    def __init__(self, tables: Sequence[TextTable]) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in self._tables:
            if table.rows:
                if table.title:
                    yield Text(table.title, style="italic")
                    yield Text()
                width = options.max_width
                if parts := _parts(table, width):
                    for columns in parts:
                        yield _grid(table, columns)
                        yield Text()
                else:
                    for row in table.rows:
                        yield from _block(table, row, width)
                        yield Text()
            for note in table.notes:
                yield Text(note, style="dim")
            if table.notes:
                yield Text()


def _parts(table: TextTable, width: int) -> list[list[int]] | None:
    """Return the columns of each part of a table, several without its spare columns; None if there are too many."""
    columns = range(table.labels, len(table.header))
    whole = _as_parts(table, columns, width)
    if whole is None or len(whole) > 1:
        whole = _as_parts(table, [column for column in columns if column not in table.spare], width)
    return whole if whole and len(whole) <= MOST_PARTS else None


def _as_parts(table: TextTable, columns: Sequence[int], width: int) -> list[list[int]] | None:
    """Split ``columns`` into parts that fit next to the labels; None if one column alone does not fit."""
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
    """Yield the rows without labels repeated from the row above; the last label is always kept."""
    yield from table.rows[:1]
    for above, row in pairwise(table.rows):
        same = 0
        while same < table.labels - 1 and row[same] == above[same]:
            same += 1
        yield (*("" for _ in range(same)), *row[same:])


def _block(table: TextTable, row: Sequence[str], width: int) -> Iterator[RenderableType]:
    """Yield a row's labels, and below them each value, to the right of its heading if it fits, else below it."""
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
