"""A line for each configuration, with what lies between its seeds.

Shapes: P points of a line.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from search.pages.ink import colours_of, marks_of
from search.pages.labels import row_label
from search.report.models.ranked_test import RankedConfiguration
from search.report.results.comparison import Comparison
from search.report.tables.row_names import loss_label
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
    """The mean of each configuration's ``lines`` with its loss's mark, and a band from the lowest to the highest.

    A default is dashed and its marks are hollow.
    """
    losses = [loss_label(comparison, row.search, row.loss) for row in comparison.rows]
    marks = marks_of(losses)
    for place, (entry, label, found) in enumerate(
        zip(shown, configuration_labels(comparison, shown), lines, strict=True)
    ):
        colour, tuned = colour_of(comparison, entry), entry.row.role is Role.TUNED
        axes.fill_between(x_P, np.min(found, axis=0), np.max(found, axis=0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(
            x_P,
            np.mean(found, axis=0),
            "-" if tuned else "--",
            color=colour,
            linewidth=1.4,
            label=label,
            marker=marks[loss_label(comparison, entry.row.search, entry.row.loss)],
            markersize=4.5,
            markerfacecolor=colour if tuned else "none",
            markevery=(3 * place % 20, 20),
        )
