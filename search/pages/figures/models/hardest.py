"""The classes that are found worst, and what they are taken for.

Shapes: C test classes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.ink import FAINT, INK, colours_of, marks_of
from search.report.models.ranked_test import RankedTest
from search.report.results.comparison import Comparison
from search.report.results.row import RowKey
from search.report.tables.row_names import loss_label
from search.report.tables.text_table import NOTHING, TextTable
from search.selection.role import Role

NAME = "hardest"
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
    with drawn(NAME, 70 + 34 * len(worst)) as canvas:
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
        name=NAME,
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
