"""The rendering of progress as text that fits the terminal. It imports neither Optuna nor Ray."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from search.text_table import NOTHING, sparkline


def phase(console: Console, text: str, silent_s: float = 5) -> AbstractContextManager[object]:
    """Show ``text`` with a spinner until the end of the block.

    If the console is not a terminal, print it once the block has taken ``silent_s`` seconds.
    """
    return console.status(text) if console.is_terminal else _late(console, text, silent_s)


@contextmanager
def _late(console: Console, text: str, silent_s: float) -> Iterator[None]:
    timer = threading.Timer(silent_s, console.print, [text], {"style": "dim", "highlight": False})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class StoreProgress:
    """Callback that prints the number of decoded images every ``every_s`` seconds.

    ``heard`` is the time of the last call, on the monotonic clock.
    """

    def __init__(self, console: Console, every_s: float = 5) -> None:
        self._console = console
        self._every_s = every_s
        self.heard = time.monotonic()
        self._next = self.heard + every_s

    def __call__(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` images are decoded."""
        self.heard = time.monotonic()
        if self.heard >= self._next:
            self._console.print(f"Decoding images: {done:,} of {total:,}", style="dim", highlight=False)
            self._next = time.monotonic() + self._every_s


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

GAP, CURVE = 2, 16
"""Spaces between columns; number of epochs in a slot's curve."""
BEST = "best"
STUDIES = ("loss", "done", "running", "pruned", "failed", BEST)
RUNG, CURVES = "next rung", "values by epoch"
SLOTS = ("trial", "epoch", "value", RUNG, CURVES)


@dataclass(frozen=True, kw_only=True)
class StudyLine:
    """A study's row: ``ended`` trials ``of`` those planned, by state.

    ``best`` is the highest value of a complete trial of the search; None in later stages, whose classes are others.
    """

    name: str
    ended: int
    of: int
    running: int
    pruned: int
    failed: int
    best: float | None


@dataclass(frozen=True, kw_only=True)
class SlotLine:
    """The row of a running ``trial``, its number and half or fold.

    It has trained ``epoch`` of ``epochs``, has the current ``value`` and had ``values`` after each epoch.
    ``rung`` is the step of its next comparison (None if there is none), ``bar`` the lowest value that currently passes
    it (None before other trials have reached it).
    """

    name: str
    trial: str
    epoch: int
    epochs: int
    value: float | None
    rung: int | None
    bar: float | None
    values: Sequence[float]


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
    studies: Sequence[StudyLine],
    running: Sequence[SlotLine],
    *,
    slots: int,
    width: int,
    height: int,
) -> RenderableType:
    """Return the display: the title, one row per study and one per slot, as many as fit; the others are counted.

    Args:
        title: the title of the stage.
        elapsed: seconds since the command began.
        left: the text on the time left.
        studies: the studies of the stage.
        running: the first slots, at least as many as may fit.
        slots: number of all slots.
        width: columns of the terminal.
        height: lines of the terminal.
    """
    lines: list[RenderableType] = [Text(f"{title}, {duration(elapsed)} so far", style="bold"), Text(left, style="dim")]
    room = max(2, height - len(lines) - 1)
    if studies:
        most = max(1, room // 2 - 2 if running else room - 2)
        # If not all studies fit, show those with running trials first.
        first = studies if len(studies) <= most else sorted(studies, key=lambda study: not study.running)[:most]
        lines += _table(STUDIES, [_study_cells(study) for study in first], width, len(studies))
    room = height - _height(lines) - 1
    if running and room > 2:
        shown_slots = running[: room - 1 if slots < room else room - 2]
        lines += _table(SLOTS, [_slot_cells(slot) for slot in shown_slots], width, slots)
    return Group(*lines)


def _height(lines: Sequence[RenderableType]) -> int:
    return sum(line.row_count + 1 if isinstance(line, Table) else 1 for line in lines)


def _study_cells(study: StudyLine) -> tuple[str, ...]:
    numbers = (study.running, study.pruned, study.failed)
    best = NOTHING if study.best is None else f"{study.best:.4f}"
    return study.name, f"{study.ended}/{study.of}", *map(str, numbers), best


def _slot_cells(slot: SlotLine) -> tuple[str, ...]:
    value = NOTHING if slot.value is None else f"{slot.value:.4f}"
    bar = "" if slot.bar is None else f"{slot.bar:.4f} "
    rung = NOTHING if slot.rung is None else f"{bar}at {slot.rung}"
    name = f"{slot.name} {slot.trial}"
    return name, f"{slot.epoch}/{slot.epochs}", value, rung, sparkline(slot.values, CURVE)


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], width: int, count: int) -> list[RenderableType]:
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
