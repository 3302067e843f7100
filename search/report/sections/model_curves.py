"""Figures: distances of images, and precision over recall.

Shapes: B bins of cosine similarity, L recall levels.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search.report.compared import Comparison
from search.report.drawing import FAINT, Figure, drawn, label_rows, legend_below, loss_styles, mark_loss, row_label
from search.report.formats import interval, loss_label
from search.report.rankings import RankedConfiguration, RankedTest, distance_quantile, overlap
from search.report.statistics import over_seeds
from search.report.text_table import NOTHING, TextTable
from search.selection import EDGES, LEVELS
from search.stages import Role

# Lines of configurations.


def configuration_losses(comparison: Comparison, shown: Sequence[RankedConfiguration]) -> list[str]:
    """Return the losses of the configurations, as legends name them."""
    return [loss_label(comparison, entry.row.search, entry.row.loss) for entry in shown]


def configuration_labels(comparison: Comparison, shown: Sequence[RankedConfiguration]) -> list[str]:
    """Return the labels of the configurations."""
    return [row_label(comparison, entry.row) for entry in shown]


# Distances within and between classes.

BARS = 256
"""Number of steps over the range of distances."""


def distances(comparison: Comparison, test: RankedTest) -> Figure | None:
    """Draw the distributions of cosine distances within and between classes; None unless there are both."""
    shown = [entry for entry in test.configurations if entry.models[0].same_B.any() and entry.models[0].other_B.any()]
    if not shown:
        return None
    counts = [_counts(entry) for entry in shown]
    labels, losses = configuration_labels(comparison, shown), configuration_losses(comparison, shown)
    edges = 1 - EDGES[:: (len(EDGES) - 1) // BARS]
    middles = (edges[1:] + edges[:-1]) / 2
    colours, _ = loss_styles(comparison)
    with drawn("distances", 70 + 44 * len(shown)) as canvas:
        axes = canvas.axes
        for place, (entry, both, loss) in enumerate(zip(shown, counts, losses, strict=True)):
            colour = colours[loss]
            tuned = entry.row.role is Role.TUNED
            heights = [_density(found) for found in both]
            seen = np.flatnonzero(np.max(heights, axis=0) > 0.002 * np.max(heights))
            drawn_in = slice(max(seen[0] - 1, 0), seen[-1] + 2)
            for height, sign, alpha in zip(heights, (-1, 1), (0.75, 0.25), strict=True):
                end = place + sign * 0.42 * height / np.max(heights)
                body = axes.fill_between(
                    middles[drawn_in], place, end[drawn_in], color=colour, alpha=alpha, linewidth=0
                )
                mark_loss(loss, body)
            mark_loss(loss, axes.axhline(place, color=colour, linewidth=0.8, linestyle="-" if tuned else "--"))
        low = min(distance_quantile(same_B, 0.001) for same_B, _ in counts)
        high = max(distance_quantile(other_B, 0.999) for _, other_B in counts)
        axes.set_xlim(max(low - 0.05, 0), min(high + 0.05, 2))
        label_rows(axes, labels, "cosine distance; dark: within a class, light: between classes", losses)
        axes.set_ylim(len(shown) - 0.5, -0.5)
    shared = [float(np.mean([overlap(model.same_B, model.other_B) for model in entry.models])) for entry in shown]
    best, worst = int(np.argmin(shared)), int(np.argmax(shared))
    return Figure(
        name="distances",
        title="Distances within and between classes",
        finding=(
            f"The two distributions overlap least for {labels[best]} ({shared[best]:.1%}, with median distances of "
            f"{distance_quantile(counts[best][0], 0.5):.3f} within and {distance_quantile(counts[best][1], 0.5):.3f} "
            f"between classes) and most for {labels[worst]} ({shared[worst]:.1%})."
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
            notes=(
                "Cosine distance is 1 − similarity. Quantiles pool the pairs of all models; the overlap is their mean.",
            ),
        ),
    )


def _counts(entry: RankedConfiguration) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return sum(model.same_B for model in entry.models), sum(model.other_B for model in entry.models)  # type: ignore[return-value]


def _density(counts_B: NDArray[np.int64]) -> NDArray[np.float64]:
    drawn_in: NDArray[np.int64] = counts_B.reshape(BARS, -1).sum(axis=1)
    return drawn_in / drawn_in.sum()


# Precision over recall.


def precision_recall(comparison: Comparison, test: RankedTest) -> Figure | None:
    """Draw the mean interpolated precision at 101 recalls; None if no class has two images.

    A band reaches from the lowest to the highest model of a configuration. Defaults are dashed with hollow marks.
    """
    shown = [entry for entry in test.configurations if not np.isnan(entry.models[0].precision_L).any()]
    if not shown:
        return None
    labels, losses = configuration_labels(comparison, shown), configuration_losses(comparison, shown)
    colours, marks = loss_styles(comparison)
    lines = [[model.precision_L for model in entry.models] for entry in shown]
    with drawn("precision-recall", 300) as canvas:
        axes = canvas.axes
        for place, (entry, label, loss, found) in enumerate(zip(shown, labels, losses, lines, strict=True)):
            colour, tuned = colours[loss], entry.row.role is Role.TUNED
            band = axes.fill_between(
                LEVELS, np.min(found, axis=0), np.max(found, axis=0), color=colour, alpha=0.15, lw=0
            )
            line = axes.plot(
                LEVELS,
                np.mean(found, axis=0),
                "-" if tuned else "--",
                color=colour,
                linewidth=1.4,
                label=label,
                marker=marks[loss],
                markersize=4.5,
                markerfacecolor=colour if tuned else "none",
                markevery=(3 * place % 20, 20),
            )
            mark_loss(loss, band, *line)
        axes.set_xlabel("recall; line: mean of models, band: their range", color=FAINT)
        axes.set_ylabel("interpolated precision")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.grid()
        legend_below(axes, 2, losses=losses)
    areas = [over_seeds([float(model.precision_L.mean()) for model in entry.models], entry.seeds) for entry in shown]
    best = max(range(len(areas)), key=lambda place: areas[place].mean)
    worst = min(range(len(areas)), key=lambda place: areas[place].mean)
    return Figure(
        name="precision-recall",
        title="Precision over recall",
        finding=(
            f"Mean precision over all recalls is highest for {labels[best]} ({areas[best].mean:.4f}) and lowest for "
            f"{labels[worst]} ({areas[worst].mean:.4f})."
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
