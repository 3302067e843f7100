"""Where a value lies in its range, in the range's own scale."""

import math

from optuna.distributions import FloatDistribution, IntDistribution

Range = FloatDistribution | IntDistribution


def position(distribution: Range, value: float) -> float:
    """``value`` as a share of the range: 0 at its low end, 1 at its high end, along a logarithm where it has one."""
    if distribution.log:
        return math.log(value / distribution.low) / math.log(distribution.high / distribution.low)
    return (value - distribution.low) / (distribution.high - distribution.low)


def value_at(distribution: Range, share: float) -> float:
    """The inverse of :func:`position`; shares below 0 and above 1 lie outside the range."""
    if distribution.log:
        return float(distribution.low * (distribution.high / distribution.low) ** share)
    return round(float(distribution.low + share * (distribution.high - distribution.low)), 12)  # 0 is no tiny number
