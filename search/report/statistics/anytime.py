"""Anytime curves: the best value so far against the epochs spent.

A curve is an array over the epochs of a search in the order in which they ended: its e-th entry is the best value
after e + 1 epochs, whichever trials spent them.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search.report.statistics.contrasts import LEVEL

Curve = NDArray[np.float64]

MIN_SEARCHES = 4
NEVER = 99.0
"""As a logarithm, more than any ratio; infinity is no number to subtract."""


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of several searches' curves, as far as all of them go."""
    shortest = min(len(curve) for curve in curves)
    mean: Curve = np.mean([curve[:shortest] for curve in curves], axis=0)
    return mean


def epochs_to_reach(curve: Curve, value: float) -> int | None:
    """After how many epochs ``curve`` first reaches ``value``; None where it never does."""
    reached = np.flatnonzero(curve >= value)
    return int(reached[0]) + 1 if len(reached) else None


def cost_ratio(curve: Curve, other: Curve) -> float | None:
    """The epochs that ``curve`` needs to reach the end value of ``other``, over those that ``other`` needed for it.

    Below 1 ``curve`` is the cheaper; None where it never gets there.
    """
    needed = epochs_to_reach(curve, float(other[-1]))
    spent = epochs_to_reach(other, float(other[-1]))
    assert spent is not None
    return None if needed is None else needed / spent


def certain_cost_ratio(curves: Sequence[Curve], others: Sequence[Curve]) -> float | None:
    """The cost ratio of the mean curves of two ways to search, where it is more than chance.

    Two searches that differ in their seed alone have a ratio too. The searches are dealt to the two ways anew, in all
    ways or in 999; None where a ratio as extreme as this one comes in more than 5 % of them, as it always does with
    fewer than four searches a way, and where the value is never reached.
    """
    from scipy.stats import permutation_test  # half a second, for several searches alone

    if min(len(curves), len(others)) < MIN_SEARCHES:
        return None
    every = [*curves, *others]

    def log_ratio(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
        ratio = cost_ratio(mean_curve([every[number] for number in first]), mean_curve([every[n] for n in second]))
        return NEVER if ratio is None else math.log(ratio)

    numbers = np.arange(len(every))
    split = numbers[: len(curves)], numbers[len(curves) :]
    found = permutation_test(split, log_ratio, vectorized=False, n_resamples=999, rng=np.random.default_rng(0))
    return None if found.pvalue > LEVEL else cost_ratio(mean_curve(curves), mean_curve(others))
