"""Anytime curves: the best value so far against the epochs spent.

A curve is an array over the epochs of a search in the order in which they ended: its e-th entry is the best value
after e + 1 epochs, whichever trials spent them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]


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
