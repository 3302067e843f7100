"""The live display as text that fits the terminal."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

# What is being done before there is anything else to show.


def phase(console: Console, text: str) -> AbstractContextManager[object]:
    """Show ``text`` on a terminal, until the end of the block; elsewhere nothing."""
    return console.status(text) if console.is_terminal else nullcontext()


# How far the decoding of images is.


class StoreProgress:
    """Says now and then how many images are decoded. ``heard`` is when the last one was, on the monotonic clock."""

    def __init__(self, console: Console, every_s: float = 5) -> None:
        self._console = console
        self._every_s = every_s
        self.heard = time.monotonic()
        self._next = self.heard + every_s

    def __call__(self, done: int, total: int) -> None:
        """Take the number of images decoded so far."""
        self.heard = time.monotonic()
        if self.heard >= self._next:
            self._console.print(f"Decoding images: {done:,} of {total:,}", style="dim", highlight=False)
            self._next = time.monotonic() + self._every_s


# A curve in one line of text.

SPARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last ``width`` of ``values`` as blocks, from the least to the greatest of these.

    >>> sparkline([0.1, 0.2, 0.3, 0.1], 3)
    '▄█▁'
    """
    shown = values[-width:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    span = (high - low) or 1.0
    return "".join(SPARKS[int((value - low) / span * (len(SPARKS) - 1))] for value in shown)


# What the live display shows, as text that fits the terminal.

NOTHING = "–"
GAP, CURVE = 2, 16
"""Blanks between columns, and the epochs that a slot's curve shows."""
STUDIES = ("loss", "done", "running", "pruned", "failed", "best")
RUNG, CURVES = "next rung", "values by epoch"
SLOTS = ("trial", "epoch", "value", RUNG, CURVES)


@dataclass(frozen=True, kw_only=True)
class StudyLine:
    """One study: how many of its trials ended, ``of`` how many, and in which way; ``best`` is what the stage looks at.

    In a confirmation that is the highest mean that would be chosen, else the highest value.
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
    """What one slot trains: ``epoch`` of ``epochs``, its ``value`` so far, its ``values`` after each epoch.

    ``rung`` is the step after which it is compared next, ``bar`` the least value that goes on there so far; None where
    it is compared no more, or with nobody yet.
    """

    name: str
    trial: int
    epoch: int
    epochs: int
    value: float | None
    rung: int | None
    bar: float | None
    values: Sequence[float]


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(93784)
    '26:03:04'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"


def time_left(seconds: float | None) -> str:
    """A sentence on the time that all stages still take; None before an epoch was measured."""
    return "time left known after the first epochs" if seconds is None else f"about {duration(seconds)} left in all"


def view(
    title: str,
    elapsed: float,
    left: float | None,
    studies: Sequence[StudyLine],
    running: Sequence[SlotLine],
    *,
    slots: int,
    width: int,
    height: int,
) -> RenderableType:
    """The phase, a line a study and a line a slot, as many as the terminal has; what is not shown is counted.

    Args:
        title: the phase.
        elapsed: seconds since the command began.
        left: seconds that all stages still take, as far as is known.
        studies: of the stage.
        running: the first slots, as many as may be shown.
        slots: how many there are.
        width: columns of the terminal.
        height: its lines.
    """
    lines: list[RenderableType] = [
        Text(f"{title}, {duration(elapsed)} so far", style="bold"),
        Text(time_left(left), style="dim"),
    ]
    room = max(2, height - len(lines) - 1)
    if studies:
        most = max(1, room // 2 - 2 if running else room - 2)
        # Of more studies than there is room for, those come first that something can be seen of.
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
    """The columns from the left that fit, so no number is cut, and how many rows are not shown.

    Where nothing is pruned there are no rungs to show.
    """
    unused = [place for place, name in enumerate(header) if name == RUNG and {row[place] for row in rows} == {NOTHING}]
    used = [place for place in range(len(header)) if place not in unused]
    header, *rows = (tuple(cells[place] for place in used) for cells in (header, *rows))
    widths = [max(map(cell_len, cells)) for cells in zip(header, *rows, strict=True)]
    columns = len(widths)
    while columns > 1 and sum(widths[:columns]) + GAP * (columns - 1) > width:
        columns -= 1
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    for position in range(columns):
        is_text = position == 0 or header[position] == CURVES
        least = widths[position] if position else None  # of names alone something may be cut
        table.add_column(header[position], no_wrap=True, justify="left" if is_text else "right", min_width=least)
    for row in rows:
        table.add_row(*map(Text, row[:columns]))
    more = [Text(f"… and {count - len(rows)} more", style="dim")] if count > len(rows) else []
    return [table, *more]
