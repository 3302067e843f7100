"""What the rows of a comparison are called in pictures."""

from search.report.results.comparison import Comparison
from search.report.results.row import Row
from search.selection.role import Role


def loss_label(comparison: Comparison, search: str, loss: str) -> str:
    """A loss, with its search where there are several."""
    return loss if len(comparison.searches) == 1 else f"{search}/{loss}"


def row_label(comparison: Comparison, row: Row) -> str:
    """A row: its loss, and whether its configuration is the default or the chosen one."""
    role = "default" if row.role is Role.DEFAULT else "tuned"
    return f"{loss_label(comparison, row.search, row.loss)}, {role}"
