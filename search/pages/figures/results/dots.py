"""The test values of all configurations beside each other, with their intervals."""

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.ink import FAINT, colours_of
from search.pages.labels import row_label
from search.report.results.comparison import Comparison
from search.report.results.row import Row
from search.report.results.seed_statistics import SeedInterval
from search.report.tables.formats import interval
from search.report.tables.row_names import loss_label
from search.report.tables.text_table import NOTHING, TextTable
from search.selection.role import Role


def dots(comparison: Comparison, metric: str) -> Figure | None:
    """Each row's ``metric`` on the test classes, a default hollow and what was tuned full; None while sealed."""
    tested = [(row, row.test[metric]) for row in comparison.rows if row.test and metric in row.test]
    if not tested:
        return None
    losses = [loss_label(comparison, row.search, row.loss) for row, _ in tested]
    colours = colours_of(losses)
    ends = [end for _, entry in tested for end in entry.ci95 or (entry.mean,)]
    name = f"test-{metric}"
    with drawn(name, 60 + 22 * len(tested)) as canvas:
        axes = canvas.axes
        for place, ((row, entry), loss) in enumerate(zip(tested, losses, strict=True)):
            colour, tuned = colours[loss], row.role is Role.TUNED
            if entry.ci95:
                axes.plot(entry.ci95, [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
            axes.plot(entry.values, [place] * len(entry.values), "|", color=colour, markersize=7, alpha=0.6)
            face = colour if tuned else "none"
            axes.plot([entry.mean], [place], "o", color=colour, markerfacecolor=face, markersize=7)
        axes.set_yticks(range(len(tested)), [row_label(comparison, row) for row, _ in tested])
        axes.invert_yaxis()
        axes.set_xlabel(f"{metric}: mean, 95 % interval, and seeds as ticks", color=FAINT)
        axes.set_xlim(*_room(min(ends), max(ends)))
        axes.grid(axis="x")
    return Figure(
        name=name,
        title=f"{metric} on the test classes",
        finding=_finding(comparison, tested, metric),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("configuration", metric, "deviation", "95 % interval", "seeds"),
            rows=tuple(
                (
                    row_label(comparison, row),
                    f"{entry.mean:.4f}",
                    NOTHING if entry.std is None else f"{entry.std:.4f}",
                    interval(entry.ci95) if entry.ci95 else NOTHING,
                    str(entry.seeds),
                )
                for row, entry in tested
            ),
            labels=1,
            notes=(),
        ),
    )


def _room(low: float, high: float) -> tuple[float, float]:
    margin = 0.06 * (high - low) or 0.05
    return low - margin, high + margin


def _finding(comparison: Comparison, tested: list[tuple[Row, SeedInterval]], metric: str) -> str:
    best, entry = max(tested, key=lambda found: found[1].mean)
    worst, least = min(tested, key=lambda found: found[1].mean)
    return (
        f"The highest mean {metric} has {row_label(comparison, best)} with {entry.mean:.4f}, the lowest "
        f"{row_label(comparison, worst)} with {least.mean:.4f}."
    )
