"""A line for each configuration, with what lies between its seeds.

Shapes: P points of a line.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from search.pages.ink import colours_of
from search.pages.labels import loss_label, row_label
from search.report.models.ranked_test import RankedConfiguration
from search.report.results.comparison import Comparison
from search.selection.role import Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def configuration_labels(comparison: Comparison, shown: Sequence[RankedConfiguration]) -> list[str]:
    """What the configurations are called."""
    return [row_label(comparison, entry.row) for entry in shown]


def colour_of(comparison: Comparison, entry: RankedConfiguration) -> str:
    """The colour of its loss, which it has in every picture of the comparison."""
    losses = [loss_label(comparison, row.search, row.loss) for row in comparison.rows]
    return colours_of(losses)[loss_label(comparison, entry.row.search, entry.row.loss)]


def draw_seed_lines(
    axes: "Axes",
    comparison: Comparison,
    shown: Sequence[RankedConfiguration],
    x_P: NDArray[np.float64],
    lines: Sequence[Sequence[NDArray[np.float64]]],
) -> None:
    """The mean of each configuration's ``lines``, dashed for a default, and a band from the lowest to the highest."""
    for entry, label, found in zip(shown, configuration_labels(comparison, shown), lines, strict=True):
        colour = colour_of(comparison, entry)
        style = "-" if entry.row.role is Role.TUNED else "--"
        axes.fill_between(x_P, np.min(found, axis=0), np.max(found, axis=0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(x_P, np.mean(found, axis=0), style, color=colour, linewidth=1.4, label=label)
