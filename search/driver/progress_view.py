"""The rendering of progress as text that fits the terminal. It imports neither Optuna nor Ray."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from search.text_table import NOTHING

EVERY_S = 5.0
"""Time after which something is printed where no terminal shows that the command works."""


def say(console: Console, sentences: Iterable[str], style: str | None = "dim") -> None:
    """Print each of ``sentences`` once; the searches of a campaign share some."""
    for sentence in dict.fromkeys(sentences):
        console.print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def phase(console: Console, text: str) -> Iterator[None]:
    """Show ``text`` with a spinner until the end of the block; without a terminal, print it after a while."""
    timer = threading.Timer(EVERY_S, say, [console, [text]])
    timer.daemon = True
    with console.status(text) if console.is_terminal else nullcontext():
        if not console.is_terminal:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()


class StoreProgress:
    """Callback that prints how many items are read, now and then."""

    def __init__(self, console: Console, noun: str) -> None:
        self._console, self._noun = console, noun
        self._next = time.monotonic() + EVERY_S

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() >= self._next:
            say(self._console, [f"Reading {self._noun}: {done:,} of {total:,}"])
            self._next = time.monotonic() + EVERY_S


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


def time_left(seconds: float | None) -> str:
    """Return the text on the time left for all trainings, None if it is not known."""
    if seconds is None:
        return "time left known after the first trial"
    return f"about {duration(seconds)} left in all" if round(seconds) else "no training left"


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

    ``elapsed`` is in seconds. ``studies`` have the cells of :data:`STUDIES`; those of ``running``, at least as many of
    the ``slots`` as may fit, are :data:`SLOTS`.
    """
    lines: list[RenderableType] = [Text(f"{title}, {duration(elapsed)} so far", style="bold"), Text(left, style="dim")]
    room = max(2, height - len(lines) - 1)
    if studies:
        most = max(1, room // 2 - 2 if running else room - 2)
        # If not all studies fit, show those with running trials first.
        idle = STUDIES.index(RUNNING)
        first = studies if len(studies) <= most else sorted(studies, key=lambda cells: cells[idle] == "0")[:most]
        lines += _table(STUDIES, first, width, len(studies))
    room = height - 1 - sum(line.row_count + 1 if isinstance(line, Table) else 1 for line in lines)
    if running and room > 2:
        lines += _table(SLOTS, running[: room - 1 if slots < room else room - 2], width, slots)
    return Group(*lines)


def _table(header: Cells, rows: Sequence[Cells], width: int, count: int) -> list[RenderableType]:
    """Return the table with the leading used columns that fit, no number cut, and the count of hidden rows."""
    columns = zip(header, *rows, strict=True)
    used = [cells for cells in columns if not (cells[0] in (RUNG, BEST) and {*cells[1:]} == {NOTHING})]
    header, *rows = zip(*used, strict=True)
    widths = [max(map(cell_len, cells)) for cells in used]
    while len(widths) > 1 and sum(widths) + GAP * (len(widths) - 1) > width:
        widths.pop()
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    for position, least in enumerate(widths):
        is_text, name = position == 0 or header[position] == CURVES, header[position]
        # only names may be cut
        table.add_column(
            name, no_wrap=True, justify="left" if is_text else "right", min_width=least if position else None
        )
    for row in rows:
        table.add_row(*map(Text, row[: len(widths)]))
    more = [Text(f"… and {count - len(rows)} more", style="dim")] if count > len(rows) else []
    return [table, *more]
