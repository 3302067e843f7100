"""Which losses differ on the test classes: every pair in one square."""

from typing import TYPE_CHECKING

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.ink import BAD, FAINT, GOOD, INK
from search.report.results.comparison import Comparison
from search.report.results.pair import Pair
from search.report.tables.row_names import loss_label
from search.report.tables.text_tables import pairs_table

if TYPE_CHECKING:
    from matplotlib.patches import Rectangle


def pair_matrix(comparison: Comparison) -> Figure | None:
    """The tuned losses against each other, and each against its default on the diagonal; None without a pair."""
    pairs = comparison.pairs
    if not pairs:
        return None
    paired = {key for pair in pairs for key in (pair.first, pair.second)}
    rows = [row for row in comparison.rows if row.key in paired]
    labels = list(dict.fromkeys(loss_label(comparison, row.search, row.loss) for row in rows))
    name = f"pairs-{pairs[0].metric}"
    size = min(8, 92 / len(labels))  # "higher" stays in its square
    with drawn(name, 110 + 42 * len(labels)) as canvas:
        axes = canvas.axes
        for pair in pairs:
            row, column = _cell(comparison, pair, labels)
            colour = FAINT if not pair.differ else GOOD if pair.difference > 0 else BAD
            axes.add_patch(_square(column, row, colour, filled=pair.differ))
            text = f"{100 * pair.difference:+.1f}\n{_sign(pair)}"
            axes.text(column, row, text, ha="center", va="center", color=INK, fontsize=size)
        axes.set_xlim(-0.5, len(labels) - 0.5)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
        axes.set_yticks(range(len(labels)), labels)
        axes.set_xlabel("row minus column, in points; diagonal: tuned minus default", color=FAINT)
    found = sum(pair.differ for pair in pairs)
    return Figure(
        name=name,
        title="Which differ",
        finding=f"Pairs that differ in {pairs[0].metric} after Holm's correction: {found} of {len(pairs)}.",
        picture=canvas.drawing,
        table=pairs_table(comparison),
    )


def _cell(comparison: Comparison, pair: Pair, labels: list[str]) -> tuple[int, int]:
    return (
        labels.index(loss_label(comparison, pair.first.search, pair.first.loss)),
        labels.index(loss_label(comparison, pair.second.search, pair.second.loss)),
    )


def _sign(pair: Pair) -> str:
    return "≈" if not pair.differ else "higher" if pair.difference > 0 else "lower"


def _square(column: int, row: int, colour: str, *, filled: bool) -> "Rectangle":
    from matplotlib.patches import Rectangle

    size = 0.92
    corner = (column - size / 2, row - size / 2)
    face = colour if filled else "none"
    return Rectangle(corner, size, size, facecolor=face, edgecolor=colour, alpha=0.35 if filled else 1)
