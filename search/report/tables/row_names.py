"""Which rows of a comparison are shown, and what they and their pairs are called."""

from search.report.results.comparison import Comparison
from search.report.results.pair import Pair
from search.report.results.row import Row
from search.selection.role import Role


def loss_label(comparison: Comparison, search: str | None, loss: str) -> str:
    """A loss, with its search where there are several; None is the mean of all searches."""
    return loss if len(comparison.searches) == 1 else f"{search or 'mean'}/{loss}"


def shown_rows(comparison: Comparison) -> list[Row]:
    """The default and the tuned configuration of each loss; one row where they are the same."""
    same = {(row.search, row.loss) for row in comparison.rows if row.role is Role.TUNED and row.number == 0}
    return [row for row in comparison.rows if row.role is Role.TUNED or (row.search, row.loss) not in same]


def trial_name(comparison: Comparison, row: Row) -> str:
    """The number of a row's trial, and which of the two configurations it is."""
    if row.role is Role.TUNED and row.number is None:
        return "none finished"
    (summary,) = [summary for summary in comparison.searches if summary.name == row.search]
    clipped = " clipped" * summary.losses[row.loss].default.clipped
    if row.role is Role.DEFAULT:
        return f"0, default{clipped}"
    return f"default{clipped} is best" if row.number == 0 else f"{row.number}, tuned"


def pair_name(comparison: Comparison, pair: Pair) -> str:
    """The two rows of a pair; a default is only ever paired with its own loss."""
    first, second = pair.first, pair.second
    other = "its default" if second.role is Role.DEFAULT else loss_label(comparison, second.search, second.loss)
    return f"{loss_label(comparison, first.search, first.loss)} − {other}"
