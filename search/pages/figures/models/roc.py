"""Verification: which pairs of one class are found at which cost of pairs of two.

Shapes: P points of a curve.
"""

import numpy as np

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.figures.models.seed_lines import configuration_labels, draw_seed_lines
from search.pages.ink import FAINT
from search.report.models.curves import auc, true_positive_rates
from search.report.models.ranked_test import RankedTest
from search.report.results.comparison import Comparison
from search.report.statistics.interval import over_seeds
from search.report.tables.formats import interval
from search.report.tables.text_table import NOTHING, TextTable

NAME = "roc"
RATES = np.logspace(-3, 0, 121)
SAID = (0.001, 0.01, 0.1)
"""Rates of false positives that the table has."""


def roc(comparison: Comparison, test: RankedTest) -> Figure | None:
    """The ROC curve of telling pairs of one class from pairs of two; None where there are not both."""
    shown = [entry for entry in test.configurations if entry.models[0].same_B.any() and entry.models[0].other_B.any()]
    if not shown:
        return None
    with drawn(NAME, 300) as canvas:
        axes = canvas.axes
        lines = [[true_positive_rates(model.same_B, model.other_B, RATES) for model in entry.models] for entry in shown]
        draw_seed_lines(axes, comparison, shown, RATES, lines)
        axes.plot(RATES, RATES, ":", color=FAINT, linewidth=1, label="chance")
        axes.set_xscale("log")
        axes.set_xticks([*SAID, 1], [f"{rate:g}" for rate in (*SAID, 1)])
        axes.minorticks_off()
        axes.set_xlabel("false positive rate; line: mean of models, band: their range", color=FAINT)
        axes.set_ylabel("true positive rate")
        axes.set_xlim(RATES[0], 1)
        axes.set_ylim(0, 1.02)
        axes.grid()
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2)
    labels = configuration_labels(comparison, shown)
    areas = [over_seeds([auc(model.same_B, model.other_B) for model in entry.models], entry.seeds) for entry in shown]
    said = [
        np.mean(
            [true_positive_rates(model.same_B, model.other_B, np.array(SAID)) for model in entry.models], axis=0
        ).tolist()
        for entry in shown
    ]
    best = max(range(len(shown)), key=lambda position: areas[position].mean)
    worst = min(range(len(shown)), key=lambda position: areas[position].mean)
    pairs = int(shown[0].models[0].same_B.sum() + shown[0].models[0].other_B.sum())
    return Figure(
        name=NAME,
        title="Telling pairs of one class from pairs of two",
        finding=(
            f"{labels[best]} has the largest area under the ROC curve, {areas[best].mean:.4f}, {labels[worst]} the "
            f"smallest, {areas[worst].mean:.4f}; at one false positive in a hundred they find {said[best][1]:.1%} and "
            f"{said[worst][1]:.1%} of the pairs of one class."
        ),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("configuration", "AUC", "95 % interval", *(f"found at {rate:g}" for rate in SAID), "seeds"),
            rows=tuple(
                (
                    label,
                    f"{area.mean:.4f}",
                    interval(area.ci95) if area.ci95 else NOTHING,
                    *(f"{rate:.4f}" for rate in found),
                    str(area.seeds),
                )
                for label, area, found in zip(labels, areas, said, strict=True)
            ),
            labels=1,
            notes=(f"{pairs:,} pairs a model, of {len(shown[0].first.ranked_Q)} queries with all other test images.",),
        ),
    )
