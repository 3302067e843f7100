"""A table of text, which a terminal, Markdown and LaTeX show alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainables.metrics.table import is_bounded

NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text. The first ``labels`` columns name a row; a cell may have several lines.

    The lines of a cell are never broken, but for the columns at the positions in ``prose``: these hold sentences.
    ``spare`` columns stand in another table too, so where not all columns fit beside each other they are left out.
    ``best`` are the cells, by row and column, whose mean on the test classes is the highest of their column.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int
    notes: tuple[str, ...] = ()
    prose: tuple[int, ...] = ()
    spare: tuple[int, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()


def best_of(column: int, metric: str, means: Sequence[float | None]) -> Iterator[tuple[int, int]]:
    """The cells of a column with the highest mean; none of a metric of which more is not known to be better."""
    known = [mean for mean in means if mean is not None]
    if not is_bounded(metric) or len(known) < 2:
        return
    for row, mean in enumerate(means):
        if mean == max(known):
            yield row, column
