"""Statistics of results: differences of rows, corrections for many tests, and intervals over seeds."""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from search.difference import LEVEL
from search.results.rows import SeedStatistics

# Differences between rows of one test set, tested against other test classes and other training seeds.
#
# Shapes: R rows, S seeds of a row, C test classes. A row is one configuration of a search; its score with one seed is
# the mean over all test queries. Classes are crossed with rows and seeds (all models are scored on the same classes).
# Seeds are nested in rows: two losses trained with the same seed number are no more alike than with different ones.
#
# This is the design of radiological reader studies in which each reader reads all cases (Obuchowski and Rockette 1995;
# Hillis 2007), with seeds for readers. With three seeds, a row has two degrees of freedom, which is too few to detect
# anything. So the rows' variances are shrunk towards the mean over all rows as in Smyth 2004 ("Linear models and
# empirical Bayes methods"), but never below a row's own. Two seeds do not show that a row is five or ten times as noisy
# as the others, so a row of two is shrunk towards this mean times the number of rows, at most ``SEEDS_LENT``.
# ``python -m benchmarks statistics`` prints the error rates and the power that docs/statistics.md has.

Key = TypeVar("Key", bound=Hashable)
Floats = NDArray[np.float64]

MIN_CLASSES = 5
"""With fewer test classes their variance cannot be estimated."""

SEEDS_LENT = 4.0
CLASSES_LENT = 8.0
"""Degrees of freedom that the other rows add to the variance of a row's seeds, and to that of its classes."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A difference, its 95 % interval, and the two-sided p-value of the value 0, among ``tests`` differences.

    The interval and ``p_corrected`` have the same correction (Bonferroni's, for intervals by Dunn 1961: "Multiple
    comparisons among means"), so the interval excludes 0 exactly if the value ``differs`` from it. All intervals of a
    table contain their true values at once with a probability of 95 %. ``p`` is that of the difference alone.
    """

    value: float
    ci95: tuple[float, float]
    p: float
    tests: int

    @property
    def p_corrected(self) -> float:
        """The p-value times the number of tests, at most 1."""
        return min(1.0, self.tests * self.p)

    @property
    def differs(self) -> bool:
        """True if the value differs significantly from 0, at 5 % for all tests together."""
        return self.p_corrected <= LEVEL

    def is_within(self, margin: float) -> bool:
        """Return True if the value is significantly between -``margin`` and ``margin``.

        This is two one-sided tests (Schuirmann 1987), each at half of 5 % for all tests together, so that the verdict
        agrees with the interval that is shown: at most one of forty tables calls some value so that is not.
        """
        low, high = self.ci95
        return -margin < low and high < margin


class ScoredRows(Generic[Key]):
    """Scores of rows that were tested on the same classes, with at least two seeds each.

    A network without training, or whose training ignores its seed, has one value per class: other seeds would not
    change it, other classes would. It adds nothing to the variances that the other rows lend each other, so their
    differences do not depend on it.

    Args:
        sums: for each row, the sum of the query scores of each test class, [S, C].
        counts_C: number of queries of each test class, of which there are at least ``MIN_CLASSES``.
        fixed: the sums of rows that do not depend on seeds, [C].
    """

    def __init__(
        self, sums: Mapping[Key, Floats], counts_C: NDArray[np.int64], fixed: Mapping[Key, Floats] | None = None
    ) -> None:
        assert len(counts_C) >= MIN_CLASSES
        assert all(len(of_row) > 1 for of_row in sums.values())
        self._share_C = counts_C / counts_C.sum()
        self._unbias, self._class_freedom = _of_weighted_classes(self._share_C)
        seeds, variances, deviations = {}, {}, {}
        self._means: dict[Key, float] = {}
        self._residual: dict[Key, float] = {}
        for row, sums_SC in sums.items():
            scores_SC = sums_SC / counts_C
            means_S = scores_SC @ self._share_C
            by_class_C = scores_SC.mean(0)
            self._means[row] = float(means_S.mean())
            deviations[row] = by_class_C - self._means[row]
            rest_SC = scores_SC - by_class_C - (means_S - self._means[row])[:, None]
            seeds[row] = len(sums_SC)
            variances[row] = float(means_S.var(ddof=1))
            residual = self._unbias * float(((self._share_C * rest_SC) ** 2).sum()) / (seeds[row] - 1)
            self._residual[row] = residual / seeds[row]
        self._trained = len(sums)
        self._total_freedom = sum(seeds.values()) - len(seeds) - (len(seeds) > 1)
        self._lend_seeds(seeds, variances)
        spread_C = np.var(list(deviations.values()), axis=0, ddof=1) if len(sums) > 1 else np.zeros(len(counts_C))
        self._typical_class_variance = self._unbias * float((self._share_C**2 * spread_C).sum())
        for row, sums_C in (fixed or {}).items():
            by_class_C = sums_C / counts_C
            self._means[row] = float(by_class_C @ self._share_C)
            deviations[row] = by_class_C - self._means[row]
        self._deviations = deviations

    def _lend_seeds(self, seeds: Mapping[Key, int], variances: Mapping[Key, float]) -> None:
        """Compute the variance of each row's mean over its seeds, and its degrees of freedom."""
        freedoms = {row: count - 1 for row, count in seeds.items()}
        typical = sum(freedoms[row] * variances[row] for row in seeds) / max(1, sum(freedoms.values()))
        self._seed_variance, self._seed_freedom = {}, {}
        for row, own in variances.items():
            times = min(SEEDS_LENT, len(seeds)) if freedoms[row] == 1 else 1.0
            variance, freedom = shrunk(own, freedoms[row], times * typical, SEEDS_LENT)
            self._seed_variance[row] = variance / seeds[row]
            self._seed_freedom[row] = min(freedom, self._total_freedom)

    def difference(self, first: Key, second: Key, tests: int = 1) -> Estimate:
        """Return the difference of two rows' mean scores, one of ``tests`` differences.

        Its variance is that of the classes plus that of the seeds, minus the part that both contain (the models' noise
        within a class), and never below either. The test is Student's t with Satterthwaite's degrees of freedom.
        """
        from scipy.special import stdtr, stdtrit  # slow to import

        value = self._means[first] - self._means[second]
        classes, class_freedom = self._of_classes(first, second)
        by_row = {row: self._seed_variance[row] for row in (first, second) if row in self._seed_variance}
        seeds = sum(by_row.values())
        both = sum(self._residual[row] for row in by_row)
        variance = max(classes, seeds, classes + seeds - both)
        if variance == 0:
            return Estimate(value=value, ci95=(value, value), p=float(value == 0), tests=tests)
        seed_parts = sum(part**2 / self._seed_freedom[row] for row, part in by_row.items())
        seed_freedom = min(seeds**2 / seed_parts, self._total_freedom) if seeds else 1.0
        if self._trained > 1:
            freedom = (classes + seeds) ** 2 / (classes**2 / class_freedom + seeds**2 / seed_freedom)
        else:  # a single row without the others' loan; Satterthwaite's would be wrong in 12 % of nulls with two seeds
            freedom = (classes + seeds) / (classes / class_freedom + seeds / seed_freedom)
        half = float(stdtrit(freedom, 1 - LEVEL / (2 * tests))) * variance**0.5
        p = float(2 * stdtr(freedom, -abs(value) / variance**0.5))
        return Estimate(value=value, ci95=(value - half, value + half), p=p, tests=tests)

    def _of_classes(self, first: Key, second: Key) -> tuple[float, float]:
        """Return the variance of a difference over other classes, and its degrees of freedom."""
        deviations_C = self._deviations[first] - self._deviations[second]
        own = self._unbias * float(((self._share_C * deviations_C) ** 2).sum())
        if self._trained <= 2:
            return own, self._class_freedom
        variance, freedom = shrunk(own, self._class_freedom, 2 * self._typical_class_variance, CLASSES_LENT)
        return variance, min(freedom, (self._trained - 1) * self._class_freedom)


def shrunk(own: float, freedom: float, typical: float, lent: float) -> tuple[float, float]:
    """Return a variance shrunk towards the typical one, never below itself, and its degrees of freedom.

    The more it exceeds the typical one, the fewer degrees of freedom are added.
    """
    share = min(1.0, typical / own) if own > 0 else 1.0
    return max(own, (lent * typical + freedom * own) / (lent + freedom)), freedom + lent * math.sqrt(share)


def _of_weighted_classes(share_C: Floats) -> tuple[float, float]:
    """Return the factor that makes Σ w²(x − Σwx)² unbiased for the variance of Σwx, and its degrees of freedom.

    They are those of a quadratic form in classes of equal variance: C / (C − 1) and C − 1 if all have equal size.
    """
    two, three, four, five = (float((share_C**power).sum()) for power in (2, 3, 4, 5))
    trace = two - 2 * three + two**2  # of the form's matrix, and below of its square
    of_square = four - 4 * five + 4 * two * four + 2 * three**2 - 4 * two**2 * three + two**4
    return two / trace, trace**2 / of_square


# Mean, deviation and interval of a few seeds. docs/statistics.md has the share of intervals that cover the true mean,
# and their mean width. Bootstrap-t covers .80 with three seeds.


def over_seeds(values: Sequence[float], seeds: Sequence[int] | None = None, *, bounded: bool = False) -> SeedStatistics:
    """Return mean, sample standard deviation and 95 % interval of ``values``.

    The interval is m ± t(0.975, n − 1) · s / √n, Student's t over n seeds. For a metric that is ``bounded`` by 0 and 1
    it is computed around logit m, with s / √n / (m (1 − m)) by the delta method, and transformed back: so it stays
    between 0 and 1. There is none with one seed, nor of equal values, which do not tell how seeds vary.

    Args:
        values: the values of the models.
        seeds: the seed of each value, if several share one, as the models of a cross-validation's folds do. Such values
            are not independent, so m and s are those of the seeds' means; ``std`` remains the deviation of all values,
            which papers print.
        bounded: True for a metric between 0 and 1.
    """
    by_seed: dict[int, list[float]] = {}
    for seed, value in zip(range(len(values)) if seeds is None else seeds, values, strict=True):
        by_seed.setdefault(seed, []).append(value)
    ci95 = _interval([statistics.fmean(shared) for shared in by_seed.values()], bounded)
    return SeedStatistics.over(values, seeds, ci95=ci95)


def _interval(values: Sequence[float], bounded: bool) -> tuple[float, float] | None:
    from scipy.special import stdtrit  # takes 0.1 s to import

    if len(set(values)) < 2:
        return None
    count, mean = len(values), statistics.fmean(values)
    half = float(stdtrit(count - 1, 0.975)) * statistics.stdev(values) / math.sqrt(count)
    slope = mean * (1 - mean)
    if not bounded or slope <= 0:  # a mean that is rounded to 0 or 1
        return mean - half, mean + half
    odds, factor = mean / (1 - mean), math.exp(min(half / slope, 700))
    return odds / (odds + factor), odds * factor / (1 + odds * factor)
