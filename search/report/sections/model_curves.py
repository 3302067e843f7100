"""Figures: distances, precision over recall, and ROC curves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from search.report.drawing import FAINT, Figure, colours_of, drawn, marks_of, row_label
from search.report.formats import interval, loss_label
from search.report.ranked_test import (
    RankedConfiguration,
    RankedTest,
    auc,
    distance_quantile,
    overlap,
    true_positive_rates,
)
from search.report.results import Comparison
from search.report.statistics import over_seeds
from search.report.text_table import NOTHING, TextTable
from search.selection import EDGES, LEVELS
from search.stages import Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# A line for each configuration, with what lies between its seeds.
#
# Shapes: P points of a line.


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


# How far images of one class are from each other, and from those of others.
#
# Shapes: B bins of cosine similarity.

DISTANCES = "distances"
BARS = 256
"""So many steps has the whole range of distances."""


def distances(comparison: Comparison, test: RankedTest) -> Figure | None:
    """The distributions of cosine distances within and between classes; None where there are not both."""
    shown = [entry for entry in test.configurations if entry.models[0].same_B.any() and entry.models[0].other_B.any()]
    if not shown:
        return None
    counts = [_counts(entry) for entry in shown]
    labels = configuration_labels(comparison, shown)
    edges = 1 - EDGES[:: (len(EDGES) - 1) // BARS]
    middles = (edges[1:] + edges[:-1]) / 2
    with drawn(DISTANCES, 70 + 44 * len(shown)) as canvas:
        axes = canvas.axes
        for place, (entry, both) in enumerate(zip(shown, counts, strict=True)):
            colour, tuned = colour_of(comparison, entry), entry.row.role is Role.TUNED
            heights = [_density(found) for found in both]
            seen = np.flatnonzero(np.max(heights, axis=0) > 0.002 * np.max(heights))
            drawn_in = slice(max(seen[0] - 1, 0), seen[-1] + 2)
            for height, sign, alpha in zip(heights, (-1, 1), (0.75, 0.25), strict=True):
                end = place + sign * 0.42 * height / np.max(heights)
                axes.fill_between(middles[drawn_in], place, end[drawn_in], color=colour, alpha=alpha, linewidth=0)
            axes.axhline(place, color=colour, linewidth=0.8, linestyle="-" if tuned else "--")
        low = min(distance_quantile(same_B, 0.001) for same_B, _ in counts)
        high = max(distance_quantile(other_B, 0.999) for _, other_B in counts)
        axes.set_xlim(max(low - 0.05, 0), min(high + 0.05, 2))
        axes.set_yticks(range(len(shown)), labels)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel("cosine distance; dark: within a class, light: between classes", color=FAINT)
        axes.grid(axis="x")
    shared = [float(np.mean([overlap(model.same_B, model.other_B) for model in entry.models])) for entry in shown]
    best = min(range(len(shown)), key=shared.__getitem__)
    worst = max(range(len(shown)), key=shared.__getitem__)
    return Figure(
        name=DISTANCES,
        title="Distances within and between classes",
        finding=(
            f"{labels[best]} keeps the two most apart: they overlap by {shared[best]:.1%}, half of the pairs within a "
            f"class being nearer than {distance_quantile(counts[best][0], 0.5):.3f} and half of those between classes "
            f"nearer than {distance_quantile(counts[best][1], 0.5):.3f}; those of {labels[worst]} overlap by "
            f"{shared[worst]:.1%}."
        ),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("configuration", "within: 5 %", "median", "95 %", "between: 5 %", "median", "95 %", "overlap"),
            rows=tuple(
                (
                    label,
                    *(f"{distance_quantile(found, share):.3f}" for found in both for share in (0.05, 0.5, 0.95)),
                    f"{part:.4f}",
                )
                for label, both, part in zip(labels, counts, shared, strict=True)
            ),
            labels=1,
            notes=("Cosine distance is 1 − similarity. Pairs of all models together; the overlap is their mean.",),
        ),
    )


def _counts(entry: RankedConfiguration) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return sum(model.same_B for model in entry.models), sum(model.other_B for model in entry.models)  # type: ignore[return-value]


def _density(counts_B: NDArray[np.int64]) -> NDArray[np.float64]:
    drawn_in: NDArray[np.int64] = counts_B.reshape(BARS, -1).sum(axis=1)
    return drawn_in / drawn_in.sum()


# Precision over recall of the configurations.
#
# Shapes: L recall levels.

PRECISION_RECALL = "precision-recall"


def precision_recall(comparison: Comparison, test: RankedTest) -> Figure | None:
    """Mean interpolated precision at 101 recalls; None where no class has two images."""
    shown = [entry for entry in test.configurations if not np.isnan(entry.models[0].precision_L).any()]
    if not shown:
        return None
    with drawn(PRECISION_RECALL, 300) as canvas:
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
        name=PRECISION_RECALL,
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


# Verification: which pairs of one class are found at which cost of pairs of two.
#
# Shapes: P points of a curve.

ROC = "roc"
RATES = np.logspace(-3, 0, 121)
SAID = (0.001, 0.01, 0.1)
"""Rates of false positives that the table has."""


def roc(comparison: Comparison, test: RankedTest) -> Figure | None:
    """The ROC curve of telling pairs of one class from pairs of two; None where there are not both."""
    shown = [entry for entry in test.configurations if entry.models[0].same_B.any() and entry.models[0].other_B.any()]
    if not shown:
        return None
    with drawn(ROC, 300) as canvas:
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
        name=ROC,
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
