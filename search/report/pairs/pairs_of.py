"""Which losses differ on the test classes: every pair of a comparison's rows, corrected for their number."""

import itertools
from collections.abc import Iterator, Sequence

from search.report.pairs.comparable import Comparable
from search.report.results.pair import Pair
from search.report.results.row import Row, RowKey
from search.report.statistics.contrasts import LEVEL
from search.report.statistics.holm import holm
from search.selection.role import Role

HOW = (
    "t over test classes and final seeds, whose variances the rows lend each other; neither the choice of "
    "hyperparameters nor the validation split is covered; Holm: corrected over"
)


def pairs_of(tested: Comparable, wanted: Sequence[tuple[RowKey, RowKey]]) -> list[Pair]:
    """The differences of ``wanted``, as far as both rows were tested, with Holm's correction over all of them."""
    pairs = [pair for pair in wanted if tested.seeds.keys() >= set(pair)]
    estimates = [tested.rows.contrast({first: 1.0, second: -1.0}) for first, second in pairs]
    corrected = holm([estimate.p for estimate in estimates])
    return [
        Pair(
            first=first,
            second=second,
            metric=tested.metric,
            seeds=min(tested.seeds[first], tested.seeds[second]),
            difference=estimate.value,
            ci95=estimate.ci95,
            p=estimate.p,
            p_holm=p_holm,
            differ=p_holm <= LEVEL,
        )
        for (first, second), estimate, p_holm in zip(pairs, estimates, corrected, strict=True)
    ]


def default_and_tuned(rows: Sequence[Row]) -> Iterator[tuple[RowKey, RowKey]]:
    """Each loss tuned against its default, and the tuned losses against each other."""
    tuned = [row for row in rows if row.role is Role.TUNED]
    for row in tuned:
        if row.number != 0:
            yield row.key, row.key._replace(role=Role.DEFAULT)
    yield from itertools.combinations((row.key for row in tuned), 2)
