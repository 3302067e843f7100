"""Figures by test class: what tuning changed, and the hardest classes."""

import html
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from search.report.drawing import FAINT, INK, PLOT_MARKS, Figure, Plot, colours_of, drawn, marks_of, plotted, rounded
from search.report.formats import loss_label
from search.report.pairs import ClassScores
from search.report.ranked_test import RankedTest
from search.report.results import Comparison, Row, RowKey
from search.report.text_table import NOTHING, TextTable
from search.selection import in_digest_order
from search.stages import Role

# A metric of every test class, for each configuration.
#
# Shapes: C test classes.


def class_values(rows: Sequence[Row], scores: Sequence[ClassScores]) -> Mapping[RowKey, NDArray[np.float64]]:
    """The mean over the seeds of each row's scores, by class [C]; rows without a scored model are left out."""
    found = {
        row.key: [entry.sums_C / entry.counts_C for entry in scores if _is_of(entry, row)]
        for row in rows
        if any(_is_of(entry, row) for entry in scores)
    }
    return {key: np.mean(values, axis=0) for key, values in found.items()}


def _is_of(entry: ClassScores, row: Row) -> bool:
    return (entry.loss, entry.source_trial) == (row.loss, row.number)


# What tuning changed for every class.
#
# Shapes: C test classes.

CLASS_DOTS = "class-dots"
MOST_DOTS = 6000
MOST_ROWS = 60


def class_dots(
    comparison: Comparison, metric: str, class_names: Sequence[str], values: Mapping[RowKey, NDArray[np.float64]]
) -> Figure | None:
    """Every class's ``metric``, default against tuned, a mark for each loss; None where no loss has both.

    ``values`` are in the order of ``class_names``.
    """
    pairs = {
        key: (values[default], values[key])
        for key in values
        if key.role is Role.TUNED and (default := key._replace(role=Role.DEFAULT)) in values
        if values[default] is not values[key]
    }
    if not pairs:
        return None
    kept = sorted(in_digest_order(class_names)[: max(MOST_DOTS // len(pairs), 1)])
    changes = sorted(
        ((key, position) for key in pairs for position in range(len(class_names))),
        key=lambda found: -abs(pairs[found[0]][1][found[1]] - pairs[found[0]][0][found[1]]),
    )
    labels = {key: loss_label(comparison, key.search, key.loss) for key in pairs}
    notes = []
    if len(changes) > MOST_ROWS:
        notes.append(f"The {MOST_ROWS} that changed most, of {len(changes)}.")
    if len(kept) < len(class_names):
        notes.append(f"The picture has {len(kept)} of {len(class_names)} classes, by the SHA-256 of their names.")
    return Figure(
        name=CLASS_DOTS,
        title=f"{metric} of every class",
        finding="; ".join(_said(labels[key], *both) for key, both in pairs.items()) + ".",
        picture=_plot(comparison, metric, [class_names[at] for at in kept], labels, pairs, kept),
        table=TextTable(
            title="",
            header=("class", "loss", "default", "tuned", "change"),
            rows=tuple(
                (
                    class_names[at],
                    labels[key],
                    f"{pairs[key][0][at]:.4f}",
                    f"{pairs[key][1][at]:.4f}",
                    f"{pairs[key][1][at] - pairs[key][0][at]:+.4f}",
                )
                for key, at in changes[:MOST_ROWS]
            ),
            labels=2,
            notes=tuple(notes),
        ),
    )


def _said(label: str, default_C: NDArray[np.float64], tuned_C: NDArray[np.float64]) -> str:
    better, worse = int((tuned_C > default_C).sum()), int((tuned_C < default_C).sum())
    return f"tuned, {label} is better than its default on {better} of {len(tuned_C)} test classes and worse on {worse}"


def _plot(
    comparison: Comparison,
    metric: str,
    class_names: Sequence[str],
    labels: Mapping[RowKey, str],
    pairs: Mapping[RowKey, tuple[NDArray[np.float64], NDArray[np.float64]]],
    kept: Sequence[int],
) -> Plot:
    losses = list(dict.fromkeys(loss_label(comparison, row.search, row.loss) for row in comparison.rows))
    colours = colours_of(losses)
    low, high = (float(limit(both)) for limit, both in ((np.min, list(pairs.values())), (np.max, list(pairs.values()))))
    no_change = {
        "type": "scatter",
        "x": [low, high],
        "y": [low, high],
        "mode": "lines",
        "line": {"color": FAINT, "dash": "dot", "width": 1},
        "name": "no change",
        "hoverinfo": "skip",
    }
    names = [html.escape(name) for name in class_names]
    dots = [
        {
            "type": "scatter",
            "x": [rounded(value) for value in default_C[kept]],
            "y": [rounded(value) for value in tuned_C[kept]],
            "text": names,
            "mode": "markers",
            "name": html.escape(labels[key]),
            "marker": {
                "color": colours[labels[key]],
                "symbol": PLOT_MARKS[losses.index(labels[key]) % len(PLOT_MARKS)],
                "size": 7,
                "opacity": 0.75,
            },
            "hovertemplate": "%{text}<br>default %{x:.4f}, tuned %{y:.4f}",
        }
        for key, (default_C, tuned_C) in pairs.items()
    ]
    layout = {
        "xaxis": {"title": {"text": html.escape(f"{metric}, default")}},
        "yaxis": {"title": {"text": html.escape(f"{metric}, tuned")}},
    }
    return plotted([no_change, *dots], layout, height=430)


# The classes that are found worst, and what they are taken for.
#
# Shapes: C test classes.

HARDEST = "hardest"
SHOWN = 10
OTHERS = 3
"""So many classes that a class is taken for are named."""
LONGEST = 24


def hardest(
    comparison: Comparison, metric: str, test: RankedTest, values: Mapping[RowKey, NDArray[np.float64]]
) -> Figure | None:
    """The classes with the lowest ``metric``, the mean of the tuned losses; None where no tuned model was scored.

    ``values`` are in the order of the test's classes.
    """
    tuned = {key: found for key, found in values.items() if key.role is Role.TUNED}
    if not tuned:
        return None
    mean_C = np.mean(list(tuned.values()), axis=0)
    worst = np.argsort(mean_C, kind="stable")[:SHOWN].tolist()
    confused = sum((model.confused for entry in test.tuned for model in entry.models), Counter[tuple[int, int]]())
    queries = np.bincount(test.labels_N[test.tuned[0].first.queries_Q], minlength=len(test.class_names))
    asked_C = queries * sum(len(entry.models) for entry in test.tuned)
    taken = {at: _taken_for(at, confused, int(asked_C[at]), test.class_names) for at in worst}
    labels = [loss_label(comparison, key.search, key.loss) for key in tuned]
    losses = [loss_label(comparison, row.search, row.loss) for row in comparison.rows]
    colours, marks = colours_of(losses), marks_of(losses)
    with drawn(HARDEST, 70 + 34 * len(worst)) as canvas:
        axes = canvas.axes
        for label, found in zip(labels, tuned.values(), strict=True):
            colour, mark = colours[label], marks[label]
            axes.plot(found[worst], range(len(worst)), mark, color=colour, markersize=5, alpha=0.8, label=label)
        axes.plot(mean_C[worst], range(len(worst)), "|", color=INK, markersize=13, label="mean")
        names = [
            "\n→ ".join([_short(test.class_names[at]), *(f"{_short(name)} {part}" for name, part in taken[at][:1])])
            for at in worst
        ]
        axes.set_yticks(range(len(worst)), names)
        axes.set_ylim(len(worst) - 0.5, -0.5)
        axes.set_xlabel(f"{metric}, tuned (→ what it is most often taken for)", color=FAINT)
        axes.grid()
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.42 / len(worst) * 3), ncols=3)
    first = worst[0]
    said = ", most often taken for {} ({} of its queries)".format(*taken[first][0]) if taken[first] else ""
    return Figure(
        name=HARDEST,
        title="The hardest classes",
        finding=(
            f"The class that the tuned losses find worst is {test.class_names[first]} with a mean {metric} of "
            f"{mean_C[first]:.4f}{said}; the mean of all {len(mean_C)} test classes is {mean_C.mean():.4f}."
        ),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=(
                "class",
                f"mean {metric}",
                *(loss_label(comparison, key.search, key.loss) for key in tuned),
                "taken for",
            ),
            rows=tuple(
                (
                    test.class_names[at],
                    f"{mean_C[at]:.4f}",
                    *(f"{found[at]:.4f}" for found in tuned.values()),
                    ", ".join(map(" ".join, taken[at])) or NOTHING,
                )
                for at in worst
            ),
            labels=1,
            notes=("Taken for: the classes of wrong nearest neighbours, in percent of all the tuned models' queries.",),
        ),
    )


def _taken_for(at: int, confused: Counter[tuple[int, int]], asked: int, names: Sequence[str]) -> list[tuple[str, str]]:
    """The classes that wrong nearest neighbours most often are, each with their part of the class's queries."""
    found = Counter({other: count for (own, other), count in confused.items() if own == at})
    return [(names[other], f"{count / asked:.0%}") for other, count in found.most_common(OTHERS)]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 + 1 :]}"
