"""Mean, deviation and interval of a few seeds."""

import math
import statistics
from collections.abc import Sequence

from search.report.results.seed_statistics import SeedInterval


def over_seeds(values: Sequence[float], seeds: Sequence[int] | None = None) -> SeedInterval:
    """Mean, sample standard deviation and 95 % interval of ``values``.

    The interval is m ± t(0.975, n − 1) · s / √n, Student's t over n seeds. Where several values share a seed, as the
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
        ci95=_interval([statistics.fmean(shared) for shared in by_seed.values()]),
        seeds=len(by_seed),
        values=tuple(values),
    )


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    from scipy.special import stdtrit  # a tenth of a second, for those who have results

    count = len(values)
    if count < 2:
        return None
    mean = statistics.fmean(values)
    half = float(stdtrit(count - 1, 0.975)) * statistics.stdev(values) / math.sqrt(count)
    return mean - half, mean + half
