"""The rendering of progress as text that fits the terminal. It imports neither Optuna nor Ray."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import IO

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from search.text_table import NOTHING

EVERY_S = 5.0
"""Time after which something is printed where no terminal shows that the command works."""


def phase(console: Console, text: str) -> AbstractContextManager[object]:
    """Show ``text`` with a spinner until the end of the block; without a terminal, print it after a while."""
    return console.status(text) if console.is_terminal else _late(console, text)


@contextmanager
def _late(console: Console, text: str) -> Iterator[None]:
    timer = threading.Timer(EVERY_S, console.print, [text], {"style": "dim", "highlight": False})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class StoreProgress:
    """Callback that prints how many items are read, now and then; ``heard`` is the time of the last call."""

    def __init__(self, console: Console, noun: str) -> None:
        self._console, self._noun = console, noun
        self.heard = time.monotonic()
        self._next = self.heard + EVERY_S

    def __call__(self, done: int, total: int) -> None:
        self.heard = time.monotonic()
        if self.heard >= self._next:
            self._console.print(f"Reading {self._noun}: {done:,} of {total:,}", style="dim", highlight=False)
            self._next = time.monotonic() + EVERY_S


def in_notebook(file: object) -> bool:
    """Return True if ``file`` is the output of a notebook's cell."""
    return type(file).__module__.startswith("ipykernel.")


class MovingLine:
    """One line of a notebook's ``file``, which each text replaces."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._width = 0

    def show(self, text: str) -> None:
        self._width = max(self._width, len(text))
        self._file.write(f"\r{text.ljust(self._width)}")
        self._file.flush()

    def end(self) -> None:
        """Keep what is shown; the next text is on another line."""
        if self._width:
            self._file.write("\n")
            self._width = 0


# The live display

GAP = 2
"""Spaces between columns."""
BEST, RUNNING = "best", "running"
STUDIES = ("loss", "done", RUNNING, "pruned", "failed", BEST)
RUNG, CURVES = "next rung", "values by epoch"
SLOTS = ("trial", "epoch", "value", RUNG, CURVES)
Cells = tuple[str, ...]
"""A row of one of these tables."""


def duration(seconds: float) -> str:
    """Return ``seconds`` as hours, minutes and seconds.

    >>> duration(93784)
    '26:03:04'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"


def time_left(seconds: float | None, *, tests: bool = False) -> str:
    """Return the text on the time left for all trainings; ``seconds`` is None before the first trial has ended.

    With ``tests`` the test is scored afterwards.
    """
    if seconds is None:
        return "time left known after the first trial"
    if round(seconds):
        return f"about {duration(seconds)} left in all"
    return "the scoring of the test is left" if tests else "nothing left"


def view(
    title: str,
    elapsed: float,
    left: str,
    studies: Sequence[Cells],
    running: Sequence[Cells],
    *,
    slots: int,
    width: int,
    height: int,
) -> RenderableType:
    """Return the display: the title, one row per study and one per slot, as many as fit; the others are counted.

    ``elapsed`` is in seconds. The cells of ``studies`` are those of :data:`STUDIES`, and of ``running``, the first of
    the ``slots``, at least as many as may fit, those of :data:`SLOTS`.
    """
    lines: list[RenderableType] = [Text(f"{title}, {duration(elapsed)} so far", style="bold"), Text(left, style="dim")]
    room = max(2, height - len(lines) - 1)
    if studies:
        most = max(1, room // 2 - 2 if running else room - 2)
        # If not all studies fit, show those with running trials first.
        idle = STUDIES.index(RUNNING)
        first = studies if len(studies) <= most else sorted(studies, key=lambda cells: cells[idle] == "0")[:most]
        lines += _table(STUDIES, first, width, len(studies))
    room = height - _height(lines) - 1
    if running and room > 2:
        lines += _table(SLOTS, running[: room - 1 if slots < room else room - 2], width, slots)
    return Group(*lines)


def _height(lines: Sequence[RenderableType]) -> int:
    return sum(line.row_count + 1 if isinstance(line, Table) else 1 for line in lines)


def _table(header: Cells, rows: Sequence[Cells], width: int, count: int) -> list[RenderableType]:
    """Return the table with the leading columns that fit, so that no number is cut, and the count of hidden rows.

    The columns of rungs and of best values are left out if no row has one.
    """
    optional = [place for place, name in enumerate(header) if name in (RUNG, BEST)]
    unused = [place for place in optional if {row[place] for row in rows} == {NOTHING}]
    used = [place for place in range(len(header)) if place not in unused]
    header, *rows = (tuple(cells[place] for place in used) for cells in (header, *rows))
    widths = [max(map(cell_len, cells)) for cells in zip(header, *rows, strict=True)]
    columns = len(widths)
    while columns > 1 and sum(widths[:columns]) + GAP * (columns - 1) > width:
        columns -= 1
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    for position in range(columns):
        is_text = position == 0 or header[position] == CURVES
        least = widths[position] if position else None  # only names may be cut
        table.add_column(header[position], no_wrap=True, justify="left" if is_text else "right", min_width=least)
    for row in rows:
        table.add_row(*map(Text, row[:columns]))
    more = [Text(f"… and {count - len(rows)} more", style="dim")] if count > len(rows) else []
    return [table, *more]
