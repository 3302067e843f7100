"""Mean, deviation and interval of a few seeds.

The interval of a metric between 0 and 1 is Student's t on the logit scale (:func:`over_seeds`). Of 60,000 samples each,
drawn from three distributions on [0, 1] whose deviation is .15 √(μ(1 − μ)), these shares of the intervals cover the
true mean μ, and these are their mean widths (``make bench-statistics``, ``intervals``; .9 is as .1):

====  =====  ==================  ==================  ==================
μ     seeds  t, cut off          arcsine             logit
====  =====  ==================  ==================  ==================
.5    2      .950, .715          .951, .683          .951, .643
.5    3      .950, .329          .951, .318          .951, .309
.5    5      .949, .174          .950, .172          .950, .171
.1    2      .946, .408          .949, .513          .951, .615
.1    3      .941, .179          .946, .191          .950, .220
.1    5      .937, .105          .942, .104          .946, .108
.02   2      .913, .176          .934, .332          .948, .652
.02   3      .883, .073          .912, .095          .937, .164
.02   5      .882, .049          .905, .053          .927, .065
.99   2      .865, .134          .911, .271          .944, .674
.99   3      .826, .058          .872, .080          .922, .160
.99   5      .830, .039          .864, .045          .902, .062
====  =====  ==================  ==================  ==================

Bootstrap-t covers .80 with three seeds, and with two there is none. All cover less near 0 and 1, where few seeds miss
the long tail.
"""

import math
import statistics
from collections.abc import Sequence

from search.report.results.seed_statistics import SeedInterval


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
