"""How far images of one class are from each other, and from those of others.

Shapes: B bins of cosine similarity.
"""

import numpy as np
from numpy.typing import NDArray

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.figures.models.seed_lines import colour_of, configuration_labels
from search.pages.ink import FAINT
from search.report.models.curves import distance_quantile, overlap
from search.report.models.ranked_test import RankedConfiguration, RankedTest
from search.report.results.comparison import Comparison
from search.report.tables.text_table import TextTable
from search.selection.role import Role
from search.selection.scores.retrieval_file import EDGES

NAME = "distances"
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
    with drawn(NAME, 70 + 44 * len(shown)) as canvas:
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
        name=NAME,
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
