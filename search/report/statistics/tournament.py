"""The tournament of losses (Psomas, Metric Learning: A Deep Dive, section 4.2.4.2 and Table 11), and whether it says
anything.

Equal losses rank in some order too. Friedman's test and the critical difference of Nemenyi's are those that Demšar 2006
("Statistical comparisons of classifiers over multiple data sets", section 3.2.2) recommends. Of equal losses in 3 to 20
settings, 3 to 10 of them, Friedman's test rejects 2 to 7 %, and some two are a critical difference apart in 1 to 5 %.
"""

import math
import statistics
from collections.abc import Mapping

import numpy as np

from search.report.results.result import Result
from search.report.statistics.contrasts import LEVEL


class Standing(Result):
    """A loss's ranks, one a setting in the settings' order, 1 the best; ``std`` (n − 1) is None with one setting."""

    loss: str
    ranks: tuple[float, ...]
    total: float
    mean: float
    std: float | None


class Tournament(Result):
    """The ``standings``, the best first, over so many ``settings``.

    ``p`` is Friedman's, of all losses being equal in other settings like these; None where all always tie. Two losses
    differ where their mean ranks are at least the ``critical_difference`` apart, at 5 % for all pairs together. Both
    are None with fewer than three losses or settings, which can show nothing.
    """

    standings: tuple[Standing, ...]
    settings: int
    p: float | None
    critical_difference: float | None


def tournament(table: Mapping[str, Mapping[str, float]]) -> Tournament | None:
    """The losses ranked in every setting of ``table``, and the ranks summed; the best first.

    Losses that tie in a setting share the mean of their ranks. None without losses.

    Args:
        table: for each setting (a network and embedding size, say) each loss's score, higher is better.

    Raises:
        ValueError: the settings have not the same losses, so that sums of ranks would mean nothing.
    """
    losses = list(next(iter(table.values()), {}))
    for setting, scores in table.items():
        if scores.keys() != set(losses):
            raise ValueError(
                f"Every setting of a tournament needs the same losses: {setting} has {', '.join(scores)} and the "
                f"first has {', '.join(losses)}; leave out what is not everywhere."
            )
    if not losses:
        return None
    from scipy.stats import (
        friedmanchisquare,
        rankdata,
        studentized_range,
    )  # half a second, for campaigns of several losses alone

    ranks_SL = np.array([rankdata([-scores[loss] for loss in losses]) for scores in table.values()])
    standings = [_standing(loss, ranks) for loss, ranks in zip(losses, ranks_SL.T.tolist(), strict=True)]
    p = critical = None
    settings, count = ranks_SL.shape
    if min(settings, count) > 2:
        if ranks_SL.std() > 0:  # the test divides by it
            p = float(friedmanchisquare(*ranks_SL.T).pvalue)
        deviation = math.sqrt(count * (count + 1) / (12 * settings))
        critical = float(studentized_range.ppf(1 - LEVEL, count, math.inf)) * deviation
    return Tournament(
        standings=tuple(sorted(standings, key=lambda standing: standing.total)),
        settings=settings,
        p=p,
        critical_difference=critical,
    )


def _standing(loss: str, ranks: list[float]) -> Standing:
    return Standing(
        loss=loss,
        ranks=tuple(ranks),
        total=sum(ranks),
        mean=statistics.fmean(ranks),
        std=statistics.stdev(ranks) if len(ranks) > 1 else None,
    )
