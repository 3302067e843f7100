"""A metric against what the campaign varied, where that is a number: K, α, b, the share of validation classes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from search.campaigns.config import LOSS
from search.campaigns.results.cells import METRIC, ROLE, unit
from search.campaigns.results.types import Cell
from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.figures.campaign.cell_table import cell_table
from search.pages.ink import FAINT, colours_of, marks_of

_LABEL = re.compile(r"(?P<group>.*?)[-_ ]?(?P<number>\d+(?:\.\d+)?)")

Lines = dict[str, list[tuple[float, Cell]]]
"""For each line's name its cells, in the order of their numbers."""


def against_number(cells: Sequence[Cell], axis: str, metric: str) -> Figure | None:
    """Mean and deviation of ``metric`` along ``axis``, a line a loss and setting, the paper's values hollow.

    Labels like ``alpha-1`` and ``alpha-2`` are a line called ``alpha``. None where the labels are no numbers.
    """
    measured = [cell for cell in cells if cell.coordinates[METRIC] == metric and cell.mean is not None]
    lines = _lines(measured, axis)
    if not lines:
        return None
    scale, name = unit(metric), f"{metric}-against-{axis}"
    colours, marks = colours_of(list(lines)), marks_of(list(lines))
    with drawn(name, 280) as canvas:
        axes = canvas.axes
        for line, points in lines.items():
            numbers = [number for number, _ in points]
            means = [scale * (cell.mean or 0.0) for _, cell in points]
            deviations = [scale * (cell.std or 0.0) for _, cell in points]
            colour, mark = colours[line], marks[line]
            axes.errorbar(
                numbers, means, yerr=deviations, label=line, color=colour, marker=mark, markersize=5, capsize=2
            )
            published = [(number, scale * cell.published) for number, cell in points if cell.published is not None]
            if published:
                xs, ys = zip(*published, strict=True)
                axes.plot(xs, ys, ":", label=f"{line}, published", color=colour, marker=mark, markerfacecolor="none")
        numbers = sorted({number for points in lines.values() for number, _ in points})
        if numbers[0] > 0 and numbers[-1] / numbers[0] > 20:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
        axes.set_xlabel(axis, color=FAINT)
        axes.set_ylabel(f"{metric}{' in per cent' if scale > 1 else ''}")
        axes.grid(axis="y")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2)
    return Figure(
        name=_plain(name),
        title=f"{metric} against {axis}",
        finding=" ".join(_said(line, points, scale) for line, points in lines.items()),
        picture=canvas.drawing,
        table=cell_table([cell for points in lines.values() for _, cell in points]),
    )


def _lines(cells: Sequence[Cell], axis: str) -> Lines:
    """The cells along ``axis``; none where a label is no number, or no line has three."""
    found: Lines = {}
    names = _names(cells, axis)
    for cell, name in zip(cells, names, strict=True):
        match = _LABEL.fullmatch(cell.coordinates[axis])
        if match is None:
            return {}
        line = " ".join(filter(None, (name, match["group"])))
        found.setdefault(line or axis, []).append((float(match["number"]), cell))
    for points in found.values():
        points.sort(key=lambda point: point[0])
        if any(first == second for (first, _), (second, _) in pairwise(points)):
            return {}  # what tells these apart is no coordinate
    return found if any(len(points) > 2 for points in found.values()) else {}


def _names(cells: Sequence[Cell], axis: str) -> Iterator[str]:
    """What tells the lines apart: every coordinate beside ``axis`` that has more than one label."""
    others = [key for key in (cells[0].coordinates if cells else ()) if key not in (axis, METRIC)]
    shown = [key for key in others if len({cell.coordinates[key] for cell in cells}) > 1]
    for cell in cells:
        yield " ".join(_label(key, cell.coordinates) for key in shown)


def _label(key: str, coordinates: Mapping[str, str]) -> str:
    return coordinates[key] if key in (LOSS, ROLE) else f"{key} {coordinates[key]}"


def _said(line: str, points: Sequence[tuple[float, Cell]], scale: float) -> str:
    best, cell = max(points, key=lambda point: point[1].mean or 0.0)
    first, last = points[0], points[-1]
    return (
        f"{line}: {scale * (first[1].mean or 0.0):.1f} at {first[0]:g}, {scale * (last[1].mean or 0.0):.1f} at "
        f"{last[0]:g}, highest {scale * (cell.mean or 0.0):.1f} at {best:g}."
    )


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", name)
