"""What becomes of a value on its way from the search to the test: choice, classes and gallery apart."""

from collections.abc import Sequence

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.ink import FAINT, colours_of, marks_of
from search.report.results.comparison import Comparison
from search.report.results.row import Row
from search.report.tables.row_names import loss_label
from search.report.tables.text_table import NOTHING, TextTable
from search.selection.role import Role

STAGES = ("search", "confirmed", "final", "test, small gallery", "test")


def way_down(comparison: Comparison) -> Figure | None:
    """The objective of each chosen configuration after each stage; None before one was confirmed.

    From search to final falls what the choice had flattered, to the test in galleries of the validation's size what
    other classes cost, and to the test what the larger gallery costs.
    """
    rows = [row for row in comparison.rows if row.role is Role.TUNED and row.confirmed]
    if not rows:
        return None
    labels = [loss_label(comparison, row.search, row.loss) for row in rows]
    values = [_values(comparison, row) for row in rows]
    colours, marks = colours_of(labels), marks_of(labels)
    with drawn("way-down", 270) as canvas:
        axes = canvas.axes
        for label, found in zip(labels, values, strict=True):
            places = [place for place, value in enumerate(found) if value is not None]
            heights = [value for value in found if value is not None]
            axes.plot(places, heights, color=colours[label], marker=marks[label], markersize=5, label=label)
        axes.set_xticks(range(len(STAGES)), [stage.replace(", ", ",\n") for stage in STAGES])
        for place, what in ((1, "choice"), (2.5, "classes"), (3.5, "gallery")):
            axes.annotate(what, (place, 1.0), xycoords=("data", "axes fraction"), ha="center", color=FAINT)
        for place in (2, 3):
            axes.axvline(place, color=FAINT, linewidth=0.6, linestyle=":")
        axes.set_ylabel(comparison.objective)
        axes.grid(axis="y")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=3)
    return Figure(
        name="way-down",
        title="From the search to the test",
        finding=_finding(comparison, values),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("loss", *STAGES),
            rows=tuple(
                (label, *(NOTHING if value is None else f"{value:.4f}" for value in found))
                for label, found in zip(labels, values, strict=True)
            ),
            labels=1,
            notes=(),
        ),
    )


def _values(comparison: Comparison, row: Row) -> list[float | None]:
    test = (row.test or {}).get(comparison.objective)
    return [
        row.search_value,
        row.confirmed.mean if row.confirmed else None,
        row.final.mean if row.final else None,
        row.test_small.mean if row.test_small else None,
        test.mean if test else None,
    ]


def _finding(comparison: Comparison, values: Sequence[Sequence[float | None]]) -> str:
    said = []
    split = comparison.split
    for what, first, second in (
        ("from the search to fresh seeds", 0, 2),
        (f"to as many classes that no training saw ({split.gallery})", 2, 3),
        (f"to all {split.test_classes} test classes in one gallery", 3, 4),
    ):
        falls = [
            found[second] - found[first]  # type: ignore[operator]
            for found in values
            if found[first] is not None and found[second] is not None
        ]
        if falls:
            said.append(f"{sum(falls) / len(falls):+.4f} {what}")
    objective = comparison.objective
    return f"On average {objective} changes by {', '.join(said)}." if said else f"{objective} after each stage so far."
