"""Means of a few noisy values each, shrunk towards their common mean."""

import statistics
from collections.abc import Sequence

LEAST_SPREAD = 0.05
"""The spread of the groups, in variances of the noise, below which they are not taken to be alike."""


def shrunk_means(groups: Sequence[Sequence[float]], noise: float | None) -> list[float]:
    """The posterior mean of each group's true mean, where the true means are normal too.

    Their variance is that of DerSimonian and Laird 1986 ("Meta-analysis in clinical trials"), moments of the groups'
    means of unequal counts. The highest mean of several is luck in part, and its shrunken one is not.

    Args:
        groups: the values of each, at least one.
        noise: the variance of a value around its group's true mean; without it (None, or 0) the means stay as they are.
    """
    means = [statistics.fmean(values) for values in groups]
    if not noise or len(groups) < 2:
        return means
    precisions = [len(values) / noise for values in groups]
    total = sum(precisions)
    centre = statistics.fmean(means, precisions)
    excess = sum(w * (mean - centre) ** 2 for w, mean in zip(precisions, means, strict=True)) - (len(groups) - 1)
    spread = max(excess / (total - sum(w**2 for w in precisions) / total), LEAST_SPREAD * noise)
    centre = statistics.fmean(means, [1 / (spread + 1 / w) for w in precisions])
    return [centre + spread / (spread + 1 / w) * (mean - centre) for w, mean in zip(precisions, means, strict=True)]


def pooled_variance(groups: Sequence[Sequence[float]], *, estimated: int = 0) -> float | None:
    """The variance within groups, from those of two values or more; None where there are too few.

    ``estimated`` is how many effects common to all groups were taken off the values before, by least squares: each took
    a degree of freedom.
    """
    several = [values for values in groups if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several) - estimated
    if freedom <= 0:
        return None
    return sum((len(values) - 1) * statistics.variance(values) for values in several) / freedom
