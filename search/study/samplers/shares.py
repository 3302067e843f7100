"""Where a value lies in its range, as the share of the values (of their logarithms) below it, and back."""

import math

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from spaces.space import steps
from spaces.value import Value


def at(distribution: BaseDistribution, share: float) -> Value:
    """The value of ``distribution`` below which lies ``share``, in [0, 1), of its values (of their logarithms)."""
    if isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log:
        low, high = _logarithms(distribution)
        inside = min(max(math.exp(low + share * (high - low)), distribution.low), distribution.high)
        return round(inside) if isinstance(distribution, IntDistribution) else inside
    values = steps(distribution)
    if values is not None:
        return values[int(share * len(values))]
    assert isinstance(distribution, FloatDistribution)
    return distribution.low + share * (distribution.high - distribution.low)


def share_of(distribution: FloatDistribution | IntDistribution, value: float) -> float:
    """The share that :func:`at` makes ``value`` of; of a step or a whole number, the middle of its shares."""
    if distribution.single():
        return 0.5
    if distribution.log:
        low, high = _logarithms(distribution)
        return (math.log(value) - low) / (high - low)
    if distribution.step is None:
        return (value - distribution.low) / (distribution.high - distribution.low)
    count = round((distribution.high - distribution.low) / distribution.step) + 1
    return (round((value - distribution.low) / distribution.step) + 0.5) / count


def _logarithms(distribution: FloatDistribution | IntDistribution) -> tuple[float, float]:
    """Both ends. Whole numbers are as wide as the way to their neighbours' middles."""
    margin = 0.5 if isinstance(distribution, IntDistribution) else 0.0
    return math.log(distribution.low - margin), math.log(distribution.high + margin)
