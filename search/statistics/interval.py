"""Mean, deviation and interval of a few seeds."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from scipy.special import stdtrit


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sample standard deviation and 95 % interval of ``values``.

    The interval is mean ± t(0.975, n − 1) · s / √n, Student's t over seeds. With one value there is neither
    deviation nor interval, and both are None.

    >>> over_seeds([1.0, 2.0, 3.0])["mean"]
    2.0
    """
    assert values, "no values"
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return {"mean": mean, "std": None, "ci95": None, "values": list(values)}
    deviation = statistics.stdev(values)
    half = float(stdtrit(count - 1, 0.975)) * deviation / math.sqrt(count)
    return {"mean": mean, "std": deviation, "ci95": [mean - half, mean + half], "values": list(values)}
