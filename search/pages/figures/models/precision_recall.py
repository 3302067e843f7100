"""Precision over recall of the configurations.

Shapes: L recall levels.
"""

import numpy as np

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.figures.models.seed_lines import configuration_labels, draw_seed_lines
from search.pages.ink import FAINT
from search.report.models.ranked_test import RankedTest
from search.report.results.comparison import Comparison
from search.report.statistics.interval import over_seeds
from search.report.tables.formats import interval
from search.report.tables.text_table import NOTHING, TextTable
from search.selection.scores.retrieval_file import LEVELS

NAME = "precision-recall"


def precision_recall(comparison: Comparison, test: RankedTest) -> Figure | None:
    """Mean interpolated precision at 101 recalls; None where no class has two images."""
    shown = [entry for entry in test.configurations if not np.isnan(entry.models[0].precision_L).any()]
    if not shown:
        return None
    with drawn(NAME, 300) as canvas:
        axes = canvas.axes
        lines = [[model.precision_L for model in entry.models] for entry in shown]
        draw_seed_lines(axes, comparison, shown, LEVELS, lines)
        axes.set_xlabel("recall; line: mean of models, band: their range", color=FAINT)
        axes.set_ylabel("interpolated precision")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.grid()
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2)
    labels = configuration_labels(comparison, shown)
    areas = [over_seeds([float(model.precision_L.mean()) for model in entry.models], entry.seeds) for entry in shown]
    best = max(range(len(shown)), key=lambda position: areas[position].mean)
    worst = min(range(len(shown)), key=lambda position: areas[position].mean)
    return Figure(
        name=NAME,
        title="Precision over recall",
        finding=(
            f"Averaged over all recalls, {labels[best]} is the most precise with {areas[best].mean:.4f}, "
            f"{labels[worst]} the least with {areas[worst].mean:.4f}."
        ),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("configuration", "mean precision", "95 % interval", "at recall 0.1", "at 0.5", "at 0.9", "seeds"),
            rows=tuple(
                (
                    label,
                    f"{area.mean:.4f}",
                    interval(area.ci95) if area.ci95 else NOTHING,
                    *(f"{np.mean([line[at] for line in found]):.4f}" for at in (10, 50, 90)),
                    str(area.seeds),
                )
                for label, area, found in zip(labels, areas, lines, strict=True)
            ),
            labels=1,
            notes=(f"{len(shown[0].first.ranked_Q)} queries against all {len(test.keys)} test images.",),
        ),
    )
