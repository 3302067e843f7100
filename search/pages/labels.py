"""What the rows of a comparison are called in pictures."""

from collections.abc import Iterator, Sequence

from search.plan.stored import StoredSearch
from search.report.results.comparison import Comparison
from search.report.results.row import Row
from search.report.tables.row_names import loss_label
from search.selection.role import Role


def row_label(comparison: Comparison, row: Row) -> str:
    """A row: its loss, and whether its configuration is the default or the chosen one."""
    role = "default" if row.role is Role.DEFAULT else "tuned"
    return f"{loss_label(comparison, row.search, row.loss)}, {role}"


def named_losses(searches: Sequence[StoredSearch]) -> Iterator[tuple[str, StoredSearch, str]]:
    """Every loss of every search, with its label; the search's name is in it where there are several."""
    for search in searches:
        for loss in search.losses:
            yield (loss if len(searches) == 1 else f"{search.name}/{loss}"), search, loss
