"""A metric of every loss and setting of a campaign as bars, the paper's numbers beside ours."""

import re
from collections.abc import Sequence

from search.campaigns.results.cells import METRIC, ROLE, unit
from search.campaigns.results.types import Cell
from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.figures.campaign.cell_table import cell_table
from search.pages.ink import COLOURS, FAINT, INK
from search.selection.role import Role

MOST = 40


def bars(cells: Sequence[Cell], metric: str) -> Figure | None:
    """Each row's mean and deviation, tuned ones full and defaults hatched; a diamond is what the paper prints.

    None without a value; of more than forty rows the forty highest are drawn, and all stand in the table.
    """
    measured = [cell for cell in cells if cell.coordinates[METRIC] == metric and cell.mean is not None]
    if not measured:
        return None
    scale, name = unit(metric), f"bars-{metric}"
    keys = [
        key
        for key in measured[0].coordinates
        if key != METRIC and len({cell.coordinates[key] for cell in measured}) > 1
    ]
    shown = sorted(measured, key=lambda cell: cell.mean or 0.0, reverse=True)[:MOST]
    labels = [" ".join(cell.coordinates[key] for key in keys) or metric for cell in shown]
    with drawn(name, 70 + 17 * len(shown)) as canvas:
        axes = canvas.axes
        for place, cell in enumerate(shown):
            tuned = cell.coordinates[ROLE] == Role.TUNED
            axes.barh(
                place,
                scale * (cell.mean or 0.0),
                height=0.65,
                xerr=None if cell.std is None else scale * cell.std,
                ecolor=INK,
                facecolor=COLOURS[0] if tuned else "none",
                edgecolor=COLOURS[0],
                hatch=None if tuned else "////",
            )
            if cell.published is not None:
                axes.plot(scale * cell.published, place, "D", color=COLOURS[1], markersize=5)
        axes.set_yticks(range(len(shown)), labels)
        axes.invert_yaxis()
        axes.set_xlabel(_legend(shown, metric, scale), color=FAINT)
        axes.grid(axis="x")
    best = shown[0]
    return Figure(
        name=re.sub(r"[^A-Za-z0-9-]+", "-", name),
        title=f"{metric}, all configurations",
        finding=_finding(labels[0], best, measured, metric),
        picture=canvas.drawing,
        table=cell_table(measured),
    )


def _legend(shown: Sequence[Cell], metric: str, scale: float) -> str:
    roles = {cell.coordinates[ROLE] for cell in shown}
    said = [f"{metric}{' in per cent' if scale > 1 else ''}", "line: deviation over seeds"]
    if len(roles) > 1:
        said.append("full: tuned, hatched: default")
    if any(cell.published is not None for cell in shown):
        said.append("diamond: published")
    return "; ".join(said)


def _finding(label: str, best: Cell, measured: Sequence[Cell], metric: str) -> str:
    scale = unit(metric)
    text = f"The highest mean {metric} has {label} with {scale * (best.mean or 0.0):.2f}."
    both = [(cell.mean, cell.published) for cell in measured if cell.mean is not None and cell.published is not None]
    if both:
        gap = sum(mean - published for mean, published in both) / len(both)
        text += f" Ours differ from the {len(both)} published numbers by {scale * gap:+.2f} on average."
    return text
