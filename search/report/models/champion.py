"""Which loss's chosen configuration is the best of a search, and whether that may be chance."""

from dataclasses import dataclass

from search.report.results.comparison import Comparison
from search.report.results.pair import Pair
from search.report.results.row import Row
from search.selection.role import Role
from trainables.mistakes import Mistakes


@dataclass(frozen=True, kw_only=True)
class Champion:
    """The ``loss`` whose chosen configuration is the best.

    It is ``distinguishable`` where it differs from the chosen configuration of every other loss, or, where there is no
    other, from its own default.
    """

    loss: str
    distinguishable: bool


def champion(comparison: Comparison) -> Champion:
    """The best of the ``comparison`` of one search on the test classes, by the metric of its pairs.

    Before the test it is the best on the validation classes, which is never distinguishable.

    Raises:
        Mistakes: nothing is chosen yet.
    """
    metric = comparison.pairs[0].metric if comparison.pairs else comparison.objective
    tuned = [row for row in comparison.rows if row.role is Role.TUNED and row.confirmed]
    tested = [row for row in tuned if row.test and metric in row.test]
    if not tuned:
        name = comparison.searches[0].name
        raise Mistakes(f"Nothing is chosen in {name} yet; `holdout run` with its file goes on.")
    best = max(tested or tuned, key=lambda row: _mean(row, metric))
    others = [row for row in tuned if row is not best]
    beaten = {loser for pair in comparison.pairs if (loser := _loser_to(best, pair))}
    rivals = {row.key for row in others} or {best.key._replace(role=Role.DEFAULT)}
    return Champion(loss=best.loss, distinguishable=rivals <= beaten)


def _mean(row: Row, metric: str) -> float:
    if row.test and metric in row.test:
        return row.test[metric].mean
    assert row.confirmed is not None, "rows that were not chosen are left out"
    return row.confirmed.mean


def _loser_to(best: Row, pair: Pair) -> object:
    """The row that ``best`` is better than beyond chance, by ``pair``; None where the pair does not say that."""
    if not pair.differ or best.key not in (pair.first, pair.second):
        return None
    winner, loser = (pair.first, pair.second) if pair.difference > 0 else (pair.second, pair.first)
    return loser if winner == best.key else None
