"""Intervals, contrasts, corrections and rankings."""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from search.report.results import Result, SeedInterval

# How sure a difference between rows of one test set is: against other test classes and other training seeds.
#
# Shapes: R rows, S seeds of a row, C test classes. A row is one configuration of a search; its score with one seed is
# the
# mean over all test queries. Classes are crossed with rows and seeds (every model is scored on the same ones), seeds
# are
# nested in rows: the same seed number makes two losses no more alike than two seeds do.
#
# This is the design of reader studies in radiology, of which each reads all cases (Obuchowski and Rockette 1995; Hillis
# 2007), with seeds for readers. With three seeds a row has two degrees of freedom, which find nothing: rows lend each
# other their variances, shrunk towards the mean over all rows as in Smyth 2004 ("Linear models and empirical Bayes
# methods"), but never below a row's own.
#
# ``make bench-statistics`` prints error rates and power. In every null of 2 to 10 rows, 2 to 5 seeds and 5 to 100
# classes, equal and unequal in size, skewed, with one row of twice the noise of the others, some pair of a table is
# wrongly called different in at most 6 % of tables; with one row of three times the noise in 7 %, and 8 % with two
# seeds.

Row = TypeVar("Row", bound=Hashable)
Floats = NDArray[np.float64]

LEVEL = 0.05
MIN_CLASSES = 5
"""Fewer test classes cannot say how far they are from other ones."""

SEEDS_LENT = 4.0
CLASSES_LENT = 8.0
"""So many degrees of freedom the other rows lend to the variance of a row's seeds, and to that of its classes."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A contrast's value with its 95 % interval, and the two-sided p-value of its being 0, before any correction."""

    value: float
    ci95: tuple[float, float]
    p: float


class ScoredRows(Generic[Row]):
    """The scores of rows that were tested on the same classes; each row has at least two seeds.

    Args:
        sums: of each row, the sum of the query scores of each test class, [S, C].
        counts_C: the number of queries of each test class, at least ``MIN_CLASSES``.
    """

    def __init__(self, sums: Mapping[Row, Floats], counts_C: NDArray[np.int64]) -> None:
        assert len(counts_C) >= MIN_CLASSES
        assert all(len(of_row) > 1 for of_row in sums.values())
        self._share_C = counts_C / counts_C.sum()
        self._unbias, self._class_freedom = _of_weighted_classes(self._share_C)
        seeds, variances, residuals, deviations = {}, {}, {}, {}
        self._means: dict[Row, float] = {}
        for row, sums_SC in sums.items():
            scores_SC = sums_SC / counts_C
            means_S = scores_SC @ self._share_C
            by_class_C = scores_SC.mean(0)
            self._means[row] = float(means_S.mean())
            deviations[row] = by_class_C - self._means[row]
            rest_SC = scores_SC - by_class_C - (means_S - self._means[row])[:, None]
            seeds[row] = len(sums_SC)
            variances[row] = float(means_S.var(ddof=1))
            residuals[row] = self._unbias * float(((self._share_C * rest_SC) ** 2).sum()) / (len(sums_SC) - 1)
        self._deviations = deviations
        self._residual = {row: residuals[row] / seeds[row] for row in sums}
        self._total_freedom = sum(seeds.values()) - len(seeds) - 1
        self._lend_seeds(seeds, variances)
        spread_C = np.var(list(deviations.values()), axis=0, ddof=1) if len(sums) > 1 else np.zeros(len(counts_C))
        self._typical_class_variance = self._unbias * float((self._share_C**2 * spread_C).sum())

    def _lend_seeds(self, seeds: Mapping[Row, int], variances: Mapping[Row, float]) -> None:
        """The variance of each row's mean over its seeds, and its degrees of freedom."""
        freedoms = {row: count - 1 for row, count in seeds.items()}
        typical = sum(freedoms[row] * variances[row] for row in seeds) / sum(freedoms.values())
        self._seed_variance, self._seed_freedom = {}, {}
        for row, own in variances.items():
            variance, freedom = shrunk(own, freedoms[row], typical, SEEDS_LENT)
            self._seed_variance[row] = float(variance) / seeds[row]
            self._seed_freedom[row] = min(float(freedom), self._total_freedom)

    def contrast(self, weights: Mapping[Row, float]) -> Estimate:
        """The sum of ``weights`` times the rows' mean scores; the weights add up to 0.

        Its variance is that of the classes plus that of the seeds, minus what both contain (the models' noise within a
        class) and never below either; Student's t with Satterthwaite's degrees of freedom.
        """
        from scipy.special import stdtr, stdtrit  # not before there is something to compare

        value = sum(weight * self._means[row] for row, weight in weights.items())
        classes, class_freedom = self._of_classes(weights)
        by_row = {row: weight**2 * self._seed_variance[row] for row, weight in weights.items()}
        seeds = sum(by_row.values())
        both = sum(weight**2 * self._residual[row] for row, weight in weights.items())
        variance = max(classes, seeds, classes + seeds - both)
        if variance == 0:
            return Estimate(value=value, ci95=(value, value), p=float(value == 0))
        seed_parts = sum(part**2 / self._seed_freedom[row] for row, part in by_row.items())
        seed_freedom = min(seeds**2 / seed_parts, self._total_freedom) if seeds else 1.0
        freedom = (classes + seeds) ** 2 / (classes**2 / class_freedom + seeds**2 / seed_freedom)
        half = float(stdtrit(freedom, 1 - LEVEL / 2)) * variance**0.5
        p = float(2 * stdtr(freedom, -abs(value) / variance**0.5))
        return Estimate(value=value, ci95=(value - half, value + half), p=p)

    def _of_classes(self, weights: Mapping[Row, float]) -> tuple[float, float]:
        """The variance of a contrast over other classes, and its degrees of freedom."""
        deviations_C = sum(weight * self._deviations[row] for row, weight in weights.items())
        own = self._unbias * float(((self._share_C * deviations_C) ** 2).sum())
        if len(self._means) == 2:
            return own, self._class_freedom
        typical = self._typical_class_variance * sum(weight**2 for weight in weights.values())
        variance, freedom = shrunk(own, self._class_freedom, typical, CLASSES_LENT)
        return float(variance), min(float(freedom), (len(self._means) - 1) * self._class_freedom)


def shrunk(
    own: ArrayLike, freedom: float, typical: ArrayLike, lent: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variances shrunk towards the typical one, never below themselves, and their degrees of freedom.

    The more one exceeds the typical one, the less it has from the others.
    """
    own, typical = np.asarray(own), np.asarray(typical)
    variance = np.maximum(own, (lent * typical + freedom * own) / (lent + freedom))
    share = np.divide(typical, own, out=np.ones_like(variance), where=own > 0)
    return variance, freedom + lent * np.sqrt(np.minimum(1, share))


def _of_weighted_classes(share_C: Floats) -> tuple[float, float]:
    """What makes Σ w²(x − Σwx)² unbiased for the variance of Σwx, and its degrees of freedom.

    They are those of a quadratic form in classes of equal variance: C / (C − 1) and C − 1 where all are of equal size.
    """
    two, three, four, five = (float((share_C**power).sum()) for power in (2, 3, 4, 5))
    trace = two - 2 * three + two**2  # of the form's matrix, and below of its square
    of_square = four - 4 * five + 4 * two * four + 2 * three**2 - 4 * two**2 * three + two**4
    return two / trace, trace**2 / of_square


# The smallest difference that a budget of seeds can be expected to show.

POWER = 0.8
TABLES = 20_000


def minimum_detectable_difference(std: float, *, seeds: int, rows: int, pairs: int) -> float | None:
    """The difference that the test of a pair finds with probability 80 % among ``pairs`` pairs of ``rows`` rows.

    It is the 80 % quantile, over tables of rows whose seeds have the deviation ``std``, of what the test needs (see
    :mod:`search.report.statistics`) beyond what the noise gives: the test classes' own noise comes on top.
    None below two seeds, where there is no test.
    """
    if seeds < 2:
        return None
    if std == 0:
        return 0.0
    from scipy.special import stdtrit  # for the noise stage alone

    generator = np.random.default_rng(0)
    freedom = seeds - 1
    own_BR = std**2 * generator.chisquare(freedom, (TABLES, rows)) / freedom
    variance_BR, freedom_BR = shrunk(own_BR, freedom, own_BR.mean(1, keepdims=True), SEEDS_LENT)
    most = rows * freedom - 1
    first_two_B2 = variance_BR[:, :2] / seeds
    variance_B = first_two_B2.sum(1)
    freedom_B = variance_B**2 / (first_two_B2**2 / np.minimum(freedom_BR[:, :2], most)).sum(1)
    needed_B = stdtrit(np.minimum(freedom_B, most), 1 - LEVEL / (2 * pairs)) * np.sqrt(variance_B)
    return float(np.quantile(needed_B - std * (2 / seeds) ** 0.5 * generator.standard_normal(TABLES), POWER))


# Several tests at once: Holm's correction.


def holm(p_values: Sequence[float]) -> list[float]:
    """``p_values`` corrected for their number, in their own order (Holm 1979).

    The i-th smallest of m becomes the largest of (m − j + 1) · p_(j) over j ≤ i, and at most 1. Rejecting what is
    then at most 5 % wrongly rejects any true hypothesis at all in at most 5 % of tables, however they depend.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, position in enumerate(sorted(range(len(p_values)), key=lambda position: p_values[position])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        corrected[position] = largest
    return corrected


# Mean, deviation and interval of a few seeds.
#
# The interval of a metric between 0 and 1 is Student's t on the logit scale (:func:`over_seeds`). Of 60,000 samples
# each,
# drawn from three distributions on [0, 1] whose deviation is .15 √(μ(1 − μ)), these shares of the intervals cover the
# true mean μ, and these are their mean widths (``make bench-statistics``, ``intervals``; .9 is as .1):
#
# ====  =====  ==================  ==================  ==================
# μ     seeds  t, cut off          arcsine             logit
# ====  =====  ==================  ==================  ==================
# .5    2      .950, .715          .951, .683          .951, .643
# .5    3      .950, .329          .951, .318          .951, .309
# .5    5      .949, .174          .950, .172          .950, .171
# .1    2      .946, .408          .949, .513          .951, .615
# .1    3      .941, .179          .946, .191          .950, .220
# .1    5      .937, .105          .942, .104          .946, .108
# .02   2      .913, .176          .934, .332          .948, .652
# .02   3      .883, .073          .912, .095          .937, .164
# .02   5      .882, .049          .905, .053          .927, .065
# .99   2      .865, .134          .911, .271          .944, .674
# .99   3      .826, .058          .872, .080          .922, .160
# .99   5      .830, .039          .864, .045          .902, .062
# ====  =====  ==================  ==================  ==================
#
# Bootstrap-t covers .80 with three seeds, and with two there is none. All cover less near 0 and 1, where few seeds miss
# the long tail.


def over_seeds(values: Sequence[float], seeds: Sequence[int] | None = None, *, bounded: bool = False) -> SeedInterval:
    """Mean, sample standard deviation and 95 % interval of ``values``.

    The interval is m ± t(0.975, n − 1) · s / √n, Student's t over n seeds. Of a metric that is ``bounded`` by 0 and 1
    it is the same around logit m, where the delta method makes s / √n to s / √n / (m (1 − m)), and back: so it stays
    between 0 and 1. Where several values share a seed, as the
    models of a cross-validation's folds do, ``seeds`` says whose each value is: they are no independent draws, so m
    and s are those of the seeds' means, while ``std`` stays the deviation of all values, which papers print.

    With one value there is no deviation, and with one seed no interval; they are None.

    >>> over_seeds([1.0, 2.0, 3.0]).mean
    2.0
    """
    assert values, "no values"
    by_seed: dict[int, list[float]] = {}
    for seed, value in zip(range(len(values)) if seeds is None else seeds, values, strict=True):
        by_seed.setdefault(seed, []).append(value)
    return SeedInterval(
        mean=statistics.fmean(values),
        std=statistics.stdev(values) if len(values) > 1 else None,
        ci95=_interval([statistics.fmean(shared) for shared in by_seed.values()], bounded),
        seeds=len(by_seed),
        values=tuple(values),
    )


def _interval(values: Sequence[float], bounded: bool) -> tuple[float, float] | None:
    from scipy.special import stdtrit  # a tenth of a second, for those who have results

    count = len(values)
    if count < 2:
        return None
    mean = statistics.fmean(values)
    half = float(stdtrit(count - 1, 0.975)) * statistics.stdev(values) / math.sqrt(count)
    slope = mean * (1 - mean)
    if not bounded or slope <= 0:  # a mean of 0 or 1, whose values are all the same
        return mean - half, mean + half
    odds, factor = mean / (1 - mean), math.exp(min(half / slope, 700))
    return odds / (odds + factor), odds * factor / (1 + odds * factor)


# The tournament of losses (Psomas, Metric Learning: A Deep Dive, section 4.2.4.2 and Table 11), and whether it says
# anything.
#
# Equal losses rank in some order too. Friedman's test and the critical difference of Nemenyi's are those that Demšar
# 2006
# ("Statistical comparisons of classifiers over multiple data sets", section 3.2.2) recommends. Of equal losses in 3
# to 20
# settings, 3 to 10 of them, Friedman's test rejects 2 to 7 %, and some two are a critical difference apart in 1 to 5 %.


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
