"""The comparison of the losses of several searches."""

from typing import TYPE_CHECKING

from search.report.results import SplitSummary, Summary
from search.report.rows import Result, Row, RowKey
from search.report.shown import Shown, frame_of

if TYPE_CHECKING:
    import pandas


class Pair(Result):
    """The difference of two rows on the test classes, the first minus the second.

    Attributes:
        first: name of a row.
        second: name of another row.
        metric: the metric; ``difference`` and ``ci95`` are in its unit.
        seeds: smaller number of seeds of the two rows; a baseline has none.
        difference: difference of the means.
        ci95: its 95 % interval, which holds for all pairs of the table at once; without 0 if they ``differ``.
        p: two-sided p-value of the pair alone, against other test classes and other seeds.
        p_corrected: ``p`` times the number of pairs (Bonferroni), at most 1.
        differ: True if ``p_corrected`` is at most 5 %.
        within: the margin of equivalence, in the unit of the metric; None without one.
        same: True if ``ci95`` lies between -``within`` and ``within``: two one-sided tests, corrected for all pairs.
            Rows may be the same within a margin and ``differ`` nevertheless.
    """

    first: RowKey
    second: RowKey
    metric: str
    seeds: int
    difference: float
    ci95: tuple[float, float]
    p: float
    p_corrected: float
    differ: bool
    within: float | None = None
    same: bool = False


class CurvePoint(Result):
    """The best ``value`` after ``epochs`` epochs; None before the first value.

    ``confirmed`` is the mean confirmed value of the best configurations so far; None unless all were confirmed.
    """

    epochs: int
    value: float | None
    confirmed: float | None


class ComparedCurve(Result):
    """The anytime curve of ``loss`` at a few points, compared with the first of several curves.

    Attributes:
        loss: name of the loss.
        points: the curve's points.
        against: label of the first curve; None for the first curve itself.
        cost_ratio: epochs that the curve needs to reach the first curve's best value, as a multiple of the epochs that
            the first curve needs. None if the curve never reaches it, and if the difference is not significant.
    """

    loss: str
    points: tuple[CurvePoint, ...]
    against: str | None
    cost_ratio: float | None


class SearchCurve(ComparedCurve):
    """The curve of a loss in ``search``; None for the mean of all searches that have the loss."""

    search: str | None


class Comparison(Shown):
    """The comparison of the losses of several searches.

    Attributes:
        objective: the objective of all searches.
        split: the class split of all searches.
        openings: a sentence on the openings of the test classes.
        warnings: sentences on training with images of an opened test set, on rows that are not trained alike, and on
            choices after the opening.
        test_metrics: the metrics of the test that are shown; none while the test is sealed.
        rows: the baselines of each search, and the default and the tuned row of each of its losses.
        pairs: the differences of rows.
        left_out: sentences on rows that could not be paired.
        anytime: the anytime curves.
        searches: the summaries of the searches.
    """

    objective: str
    split: SplitSummary
    openings: str
    warnings: tuple[str, ...]
    test_metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...]
    anytime: tuple[SearchCurve, ...]
    searches: tuple[Summary, ...]

    def to_frame(self) -> "pandas.DataFrame":
        """Return a table with one line per baseline and configuration."""
        return frame_of(self.rows)
