"""Two rows of a comparison, and whether they differ."""

from search.report.results.result import Result
from search.report.results.row import RowKey


class Pair(Result):
    """The difference of two rows on the test classes, the first minus the second.

    ``difference`` and its 95 % interval ``ci95`` are in the unit of ``metric``; each row has at least ``seeds`` seeds.
    ``p`` is against other test classes and other seeds, ``p_holm`` corrected for the number of pairs, and the rows
    ``differ`` where it is at most 5 %.
    """

    first: RowKey
    second: RowKey
    metric: str
    seeds: int
    difference: float
    ci95: tuple[float, float]
    p: float
    p_holm: float
    differ: bool
