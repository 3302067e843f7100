"""What tuning changed for every class.

Shapes: C test classes.
"""

import html
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from search.pages.figure import Figure, Plot
from search.pages.ink import FAINT, PLOT_MARKS, colours_of
from search.pages.plotted import plotted, rounded
from search.report.results.comparison import Comparison
from search.report.results.row import RowKey
from search.report.tables.row_names import loss_label
from search.report.tables.text_table import TextTable
from search.selection.role import Role
from search.selection.scores.sample import in_digest_order

NAME = "class-dots"
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
        name=NAME,
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
