"""Figures by test class: the effect of tuning, and the hardest classes.

Shapes: C test classes.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from search.report.compared import Comparison
from search.report.drawing import (
    FAINT,
    INK,
    PLOT_MARKS,
    Figure,
    Plot,
    drawn,
    label_rows,
    legend_below,
    loss_styles,
    mark_loss,
    of_loss,
    plotted,
    rounded,
    scatter,
)
from search.report.formats import loss_label
from search.report.pairs import ClassScores
from search.report.rankings import RankedTest
from search.report.rows import Row, RowKey
from search.report.text_table import NOTHING, TextTable
from search.selection import in_digest_order
from search.stages import Role
from trainables.errors import counted


def class_values(rows: Sequence[Row], scores: Sequence[ClassScores]) -> Mapping[RowKey, NDArray[np.float64]]:
    """Return each row's mean score over seeds by class [C]; rows without a scored model are omitted."""
    found = {
        row.key: [entry.sums_C / entry.counts_C for entry in scores if _is_of(entry, row)]
        for row in rows
        if any(_is_of(entry, row) for entry in scores)
    }
    return {key: np.mean(values, axis=0) for key, values in found.items()}


def _is_of(entry: ClassScores, row: Row) -> bool:
    return (entry.loss, entry.source_trial) == (row.loss, row.number)


# The effect of tuning on every class.

CLASS_DOTS = "class-dots"
MOST_DOTS = 6000
MOST_ROWS = 60


def class_dots(
    comparison: Comparison, metric: str, class_names: Sequence[str], values: Mapping[RowKey, NDArray[np.float64]]
) -> Figure | None:
    """Plot each class's ``metric``, default against tuned, with a mark per loss; None if no loss has both.

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
        notes.append(f"The {MOST_ROWS} largest changes of {len(changes):,}.")
    if len(kept) < len(class_names):
        notes.append(f"The figure shows {len(kept):,} of {len(class_names):,} classes, by the SHA-256 of their names.")
    return Figure(
        name=CLASS_DOTS,
        title=f"{metric} by class",
        finding=_dots_finding(len(class_names), {labels[key]: both for key, both in pairs.items()}),
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


def _dots_finding(classes: int, pairs: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]) -> str:
    counts = [
        f"{label} better on {int((tuned_C > default_C).sum())}, worse on {int((tuned_C < default_C).sum())}"
        for label, (default_C, tuned_C) in pairs.items()
    ]
    return f"Tuned against default on {counted(classes, 'test class', 'test classes')}: {'; '.join(counts)}."


def _plot(
    comparison: Comparison,
    metric: str,
    class_names: Sequence[str],
    labels: Mapping[RowKey, str],
    pairs: Mapping[RowKey, tuple[NDArray[np.float64], NDArray[np.float64]]],
    kept: Sequence[int],
) -> Plot:
    colours, marks = loss_styles(comparison)
    low, high = (float(limit(both)) for limit, both in ((np.min, list(pairs.values())), (np.max, list(pairs.values()))))
    line = {"color": FAINT, "dash": "dot", "width": 1}
    no_change = scatter("no change", "lines", [low, high], [low, high], line=line, hoverinfo="skip")
    names = [html.escape(name) for name in class_names]
    dots = [
        scatter(
            html.escape(labels[key]),
            "markers",
            [rounded(value) for value in default_C[kept]],
            [rounded(value) for value in tuned_C[kept]],
            text=names,
            marker={
                "color": colours[labels[key]],
                "symbol": PLOT_MARKS[marks[labels[key]]],
                "size": 7,
                "opacity": 0.75,
            },
            **of_loss(labels[key]),
            hovertemplate="%{text}<br>default %{x:.4f}, tuned %{y:.4f}",
        )
        for key, (default_C, tuned_C) in pairs.items()
    ]
    layout = {
        "xaxis": {"title": {"text": html.escape(f"{metric}, default")}},
        "yaxis": {"title": {"text": html.escape(f"{metric}, tuned")}},
    }
    return plotted([no_change, *dots], layout, height=430)


# The hardest classes and their confusions.

HARDEST = "hardest"
SHOWN = 10
OTHERS = 3
"""Number of confused classes in the table."""
LONGEST = 24
"""Longest class name in the figure, in characters."""


def hardest(
    comparison: Comparison,
    metric: str,
    test: RankedTest,
    asked: Sequence[int],
    values: Mapping[RowKey, NDArray[np.float64]],
) -> Figure | None:
    """Draw the classes with the lowest mean ``metric`` of the tuned losses; None if no tuned model was scored.

    ``values`` are in the order of ``asked``, the numbers of the test's classes that have queries.
    """
    tuned = {key: found for key, found in values.items() if key.role is Role.TUNED}
    if not tuned:
        return None
    mean_C = np.mean(list(tuned.values()), axis=0)
    worst = np.argsort(mean_C, kind="stable")[:SHOWN].tolist()
    confused = sum((model.confused for entry in test.tuned for model in entry.models), Counter[tuple[int, int]]())
    queries = np.bincount(test.labels_N[test.tuned[0].first.queries_Q], minlength=len(test.class_names))
    asked_C = queries * sum(len(entry.models) for entry in test.tuned)
    confusions = {at: _confusions(asked[at], confused, int(asked_C[asked[at]]), test.class_names) for at in worst}
    labels = [loss_label(comparison, key.search, key.loss) for key in tuned]
    colours, marks = loss_styles(comparison)
    with drawn(HARDEST, 70 + 34 * len(worst)) as canvas:
        axes = canvas.axes
        for label, found in zip(labels, tuned.values(), strict=True):
            colour, mark = colours[label], marks[label]
            dots = axes.plot(found[worst], range(len(worst)), mark, color=colour, markersize=5, alpha=0.8, label=label)
            mark_loss(label, *dots)
        axes.plot(mean_C[worst], range(len(worst)), "|", color=INK, markersize=13, label="mean")
        names = [
            "\n→ ".join(
                [_short(test.class_names[asked[at]]), *(f"{_short(name)} {part}" for name, part in confusions[at][:1])]
            )
            for at in worst
        ]
        label_rows(axes, names, f"{metric}, tuned (→ most frequent confusion)")
        axes.set_ylim(len(worst) - 0.5, -0.5)
        axes.grid(axis="y")
        legend_below(axes, 3, -0.42 / len(worst) * 3, labels)
    first = worst[0]
    confused_with = ""
    if confusions[first]:
        confused_with = ", most often confused with {} ({} of its queries)".format(*confusions[first][0])
    return Figure(
        name=HARDEST,
        title="The hardest classes",
        finding=(
            f"The hardest class is {test.class_names[asked[first]]} with a mean {metric} of {mean_C[first]:.4f} over "
            f"the tuned losses{confused_with}; the mean of all {len(mean_C)} test classes is {mean_C.mean():.4f}."
        ),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=(
                "class",
                f"mean {metric}",
                *(loss_label(comparison, key.search, key.loss) for key in tuned),
                "confused with",
            ),
            rows=tuple(
                (
                    test.class_names[asked[at]],
                    f"{mean_C[at]:.4f}",
                    *(f"{found[at]:.4f}" for found in tuned.values()),
                    ", ".join(map(" ".join, confusions[at])) or NOTHING,
                )
                for at in worst
            ),
            labels=1,
            notes=("Confused with: classes of wrong nearest neighbours, in percent of all tuned models' queries.",),
        ),
    )


def _confusions(at: int, confused: Counter[tuple[int, int]], asked: int, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the most frequent classes of wrong nearest neighbours, with their share of the class's queries."""
    found = Counter({other: count for (own, other), count in confused.items() if own == at})
    return [(names[other], f"{count / asked:.0%}") for other, count in found.most_common(OTHERS)]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 + 1 :]}"
