"""The section on default and tuned configurations on the test classes, and on their proxies."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from search.report.compared import Comparison, Pair
from search.report.comparison_tables import pairs_table
from search.report.drawing import (
    BAD,
    FAINT,
    GOOD,
    INK,
    Figure,
    Section,
    drawn,
    label_rows,
    legend_below,
    loss_styles,
    mark_loss,
    pairs_finding,
    row_label,
)
from search.report.formats import interval, loss_label, shown_rows, the_same
from search.report.pairs import comparable_halves
from search.report.rows import COLUMNS, Row, RowKey, SeedStatistics, mean_of
from search.report.text_table import NOTHING, TextTable
from search.stages import Role

if TYPE_CHECKING:
    from matplotlib.patches import Rectangle


# Test values with their intervals.


def dots(comparison: Comparison, metric: str) -> Figure | None:
    """Draw each row's ``metric`` on the test classes, tuned rows filled and others hollow; None while sealed.

    The intervals of a metric whose differences are tested can be compared by eye (:func:`comparable_halves`). Those of
    another metric are the rows' own.
    """
    tested = [(row, entry) for row in comparison.rows if (entry := (row.test or {}).get(metric))]
    if not tested:
        return None
    losses = [loss_label(comparison, row.search, row.loss) for row, _ in tested]
    colours, _ = loss_styles(comparison)
    intervals, words, caption = _intervals(comparison, tested, metric)
    ends = [end for row, entry in tested for end in intervals.get(row.key, (entry.mean,))]
    name = f"test-{metric}"
    with drawn(name, 60 + 22 * len(tested)) as canvas:
        axes = canvas.axes
        for place, ((row, entry), loss) in enumerate(zip(tested, losses, strict=True)):
            colour, tuned = colours[loss], row.role is Role.TUNED
            if row.key in intervals:
                ends_of_line = intervals[row.key]
                mark_loss(loss, *axes.plot(ends_of_line, [place, place], color=colour, lw=1.6, solid_capstyle="butt"))
            ticks = axes.plot(entry.values, [place] * len(entry.values), "|", color=colour, markersize=7, alpha=0.6)
            face = colour if tuned else "none"
            mean = axes.plot([entry.mean], [place], "o", color=colour, markerfacecolor=face, markersize=7)
            mark_loss(loss, *ticks, *mean)
        labels = [row_label(comparison, row) for row, _ in tested]
        label_rows(axes, labels, f"{metric}: mean, {words}, and seeds as ticks", losses)
        margin = 0.06 * (max(ends) - min(ends)) or 0.05
        axes.set_xlim(min(ends) - margin, max(ends) + margin)
    return Figure(
        name=name,
        title=f"{metric} on the test classes",
        finding=f"{_finding(comparison, tested, metric)} {caption}",
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("configuration", metric, "deviation", words, "seeds"),
            rows=tuple(
                (
                    row_label(comparison, row),
                    f"{entry.mean:.4f}",
                    NOTHING if entry.std is None else f"{entry.std:.4f}",
                    interval(intervals[row.key]) if row.key in intervals else NOTHING,
                    str(entry.seeds),
                )
                for row, entry in tested
            ),
            labels=1,
        ),
    )


def _intervals(
    comparison: Comparison, tested: Sequence[tuple[Row, SeedStatistics]], metric: str
) -> tuple[dict[RowKey, tuple[float, float]], str, str]:
    """Return the interval of each row that has one, what it is called, and a sentence on how to read it."""
    if not any(pair.metric == metric for pair in comparison.pairs):
        own = {row.key: entry.ci95 for row, entry in tested if entry.ci95}
        return own, "95 % interval", f"Each interval is that of its own mean; differences in {metric} are not tested."
    halves = comparable_halves(comparison.pairs)
    if halves is None:
        return {}, "comparable interval", "Only the table of differences shows which rows differ: no intervals could."
    found = {
        row.key: (entry.mean - half, entry.mean + half)
        for row, entry in tested
        if (half := halves.get(row.key)) is not None
    }
    shown = "of a loss and its default, of two tuned losses, or of a loss and the untrained network"
    return found, "comparable interval", f"Intervals {shown} overlap unless they differ significantly."


def _finding(comparison: Comparison, tested: list[tuple[Row, SeedStatistics]], metric: str) -> str:
    best, entry = max(tested, key=lambda found: found[1].mean)
    worst, least = min(tested, key=lambda found: found[1].mean)
    return (
        f"The mean {metric} is highest for {row_label(comparison, best)} ({entry.mean:.4f}) and lowest for "
        f"{row_label(comparison, worst)} ({least.mean:.4f})."
    )


# Differences on the test classes, one square per pair.


def pair_matrix(comparison: Comparison) -> Figure | None:
    """Draw the difference of each tuned loss, a row, from its default, the other losses and the networks as they are.

    A pair of losses is drawn in the rows of both, with opposite signs. None without a pair.
    """
    pairs = comparison.pairs
    if not pairs:
        return None
    cells = dict(_cells(comparison))
    found = [loss_label(comparison, row.search, row.loss) for row in comparison.rows if row.role is Role.TUNED]
    losses = [loss for loss in dict.fromkeys(found) if any(row == loss for row, _ in cells)]
    columns = [name for name in (_DEFAULT, *losses, *_baselines(comparison)) if any(name == to for _, to in cells)]
    name = f"pairs-{pairs[0].metric}"
    with drawn(name, 96 + 32 * len(losses)) as canvas:
        axes = canvas.axes
        for (loss, other), (pair, sign) in cells.items():
            row, column, difference = losses.index(loss), columns.index(other), sign * pair.difference
            colour = FAINT if not pair.differ else GOOD if difference > 0 else BAD
            text = f"{100 * difference:+.1f} {_mark(pair, difference)}"
            square = axes.add_patch(_square(column, row, colour, filled=pair.differ or pair.same))
            label = axes.text(
                column, row, text, ha="center", va="center", color=INK, fontsize=min(9, 52 / len(columns))
            )
            mark_loss(loss if other not in losses else f"{loss} {other}", square, label)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        marks = "≈ not significantly different"
        if pairs[0].within is not None:
            marks = f"= {the_same(pairs[0])}, ? undecided"
        label_rows(axes, losses, f"points, row minus column; ↑ higher, ↓ lower, {marks}", losses)
        axes.set_ylim(len(losses) - 0.5, -0.5)
        axes.set_xticks(range(len(columns)), columns, rotation=30, ha="left", rotation_mode="anchor")
        axes.xaxis.tick_top()
        for other, name_above in zip(columns, axes.get_xticklabels(), strict=True):
            if other != _DEFAULT:
                mark_loss(other, name_above)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return Figure(
        name=name,
        title="Differences between losses",
        finding=pairs_finding(pairs),
        picture=canvas.drawing,
        table=pairs_table(comparison),
    )


_DEFAULT = "its default"


def _mark(pair: Pair, difference: float) -> str:
    """Return the mark of a pair, whose ``difference`` is that of the row and the column."""
    if pair.differ:
        return f"{'↑' if difference > 0 else '↓'}{'=' * pair.same}"
    if pair.within is None:
        return "≈"
    return "=" if pair.same else "?"


def _cells(comparison: Comparison) -> Iterator[tuple[tuple[str, str], tuple[Pair, float]]]:
    """Yield row, column, their pair and the sign of its difference; a pair of two losses in both orders."""
    for pair in comparison.pairs:
        first, second = (loss_label(comparison, key.search, key.loss) for key in (pair.first, pair.second))
        own = pair.second.role is Role.DEFAULT
        yield (first, _DEFAULT if own else second), (pair, 1.0)
        if pair.second.role is Role.TUNED:
            yield (second, first), (pair, -1.0)


def _baselines(comparison: Comparison) -> list[str]:
    return [loss_label(comparison, row.search, row.loss) for row in comparison.rows if row.role is Role.BASELINE]


def _square(column: int, row: int, colour: str, *, filled: bool) -> "Rectangle":
    from matplotlib.patches import Rectangle

    size = 0.92
    corner = (column - size / 2, row - size / 2)
    face = colour if filled else "none"
    return Rectangle(corner, size, size, facecolor=face, edgecolor=colour, alpha=0.35 if filled else 1)


# The objective from the search to the test: the effects of choice, classes and gallery.

SMALL = "test_small"
STAGES = ("search", "confirmed", "final", SMALL, "test")
"""Keys of columns of the result table."""


def way_down(comparison: Comparison) -> Figure | None:
    """Plot the objective of each chosen configuration after each stage; None before one was confirmed.

    The change from search to final is the optimism of the choice, the change to the test in galleries of the
    validation's size is the effect of new classes, and the change to the test that of the larger gallery. With
    training images in the validation gallery there is no such stage. Values confirmed on halves have a gallery of their
    own and are not between the others.
    """
    rows = [row for row in comparison.rows if row.role is Role.TUNED and row.confirmed]
    if not rows:
        return None
    labels = [loss_label(comparison, row.search, row.loss) for row in rows]
    values = [_values(comparison, row) for row in rows]
    in_gallery = any(of[SMALL] is not None for of in values) or all(of["test"] is None for of in values)
    left_out = {*([] if in_gallery else [SMALL]), *(["confirmed"] if comparison.split.halves else [])}
    stages = [stage for stage in STAGES if stage not in left_out]
    final = stages.index("final")
    colours, marks = loss_styles(comparison)
    with drawn("way-down", 270) as canvas:
        axes = canvas.axes
        for label, found in zip(labels, values, strict=True):
            known = [(place, found[stage]) for place, stage in enumerate(stages) if found[stage] is not None]
            mark_loss(label, *axes.plot(*zip(*known), color=colours[label], marker=marks[label], ms=5, label=label))
        axes.set_xticks(range(len(stages)), ["test,\nsmall gallery" if stage == SMALL else stage for stage in stages])
        named = ((final / 2, "choice"), (final + 0.5, "classes"), *([(final + 1.5, "gallery")] if in_gallery else []))
        for place, what in named:
            axes.annotate(what, (place, 1.0), xycoords=("data", "axes fraction"), ha="center", color=FAINT)
        for place in range(final, len(stages) - 1):
            axes.axvline(place, color=FAINT, linewidth=0.6, linestyle=":")
        axes.set_ylabel(comparison.objective)
        axes.grid(axis="y")
        legend_below(axes, 3, losses=labels)
    return Figure(
        name="way-down",
        title="From the search to the test",
        finding=_way_down_finding(comparison, values, in_gallery=in_gallery),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("loss", *("test, small gallery" if stage == SMALL else stage for stage in stages)),
            rows=tuple(
                (label, *(NOTHING if (value := found[stage]) is None else f"{value:.4f}" for stage in stages))
                for label, found in zip(labels, values, strict=True)
            ),
            labels=1,
        ),
    )


def _values(comparison: Comparison, row: Row) -> dict[str, float | None]:
    """Return the objective in each column of the result table."""
    return {column.key: mean_of(column.entry(row, comparison.objective)) for column in COLUMNS}


def _way_down_finding(comparison: Comparison, values: Sequence[Mapping[str, float | None]], *, in_gallery: bool) -> str:
    parts = []
    split = comparison.split
    for what, first, second in (
        ("from the search to fresh seeds", "search", "final"),
        (f"from there to test galleries of {split.gallery} classes, like validation", "final", SMALL),
        (f"from there to all {split.test_classes} test classes", SMALL if in_gallery else "final", "test"),
    ):
        changes = [
            found[second] - found[first]  # type: ignore[operator]
            for found in values
            if found[first] is not None and found[second] is not None
        ]
        if changes:
            parts.append(f"{sum(changes) / len(changes):+.4f} {what}")
    objective = comparison.objective
    return f"Mean change of {objective}: {', '.join(parts)}." if parts else f"{objective} after each stage so far."


# Proxies that stay distinct.


def distinct_proxies(rows: Sequence[tuple[str, Row]]) -> Iterator[str]:
    """Yield a sentence on the proxies of a class that stay distinct, if any of the labelled ``rows`` has several.

    Multi Proxy Anchor's section 4.4 asks for as many as a class has local centres.
    """
    kept = []
    for label, row in rows:
        if entry := row.distinct_proxies:
            count = (row.params or {}).get("proxies_per_class")
            deviation = "" if entry.std is None else f" ± {entry.std:.2f}"
            kept.append(f"{entry.mean:.2f}{deviation}{'' if count is None else f' of {count}'} ({label})")
    if kept:
        yield (
            f"Distinct proxies of a class: {', '.join(kept)}. Those whose unit vectors are at most 0.1 apart count as "
            "one (Multi Proxy Anchor's gamma: their logits then differ by at most 1)."
        )


# The section.

_TITLE = "Default and tuned"


def outcome(comparison: Comparison) -> Section:
    """Return test metrics with intervals, the objective by stage, the differences of pairs, and distinct proxies."""
    figures = (
        *(dots(comparison, metric) for metric in comparison.test_metrics),
        way_down(comparison),
        pair_matrix(comparison),
    )
    without_pairs = comparison.test_metrics and not comparison.pairs and not comparison.left_out
    return Section(
        name="comparison",
        title="Untrained, default and tuned" if any(row.role is Role.BASELINE for row in comparison.rows) else _TITLE,
        figures=tuple(figure for figure in figures if figure),
        remarks=(
            *(["There are no differences to test: there is only one row."] if without_pairs else []),
            *distinct_proxies([(row_label(comparison, row), row) for row in shown_rows(comparison)]),
        ),
        pending=() if comparison.test_metrics else ("Test values: the test classes are sealed.",),
        missing=comparison.left_out,
    )
