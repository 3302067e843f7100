"""The smallest difference that a budget of seeds can be expected to show."""

import math

LEVEL, POWER = 0.05, 0.8


def minimum_detectable_difference(std: float, seeds: int) -> float | None:
    """The difference of two means of ``seeds`` trainings each that a t-test finds with probability 80 %.

    Two-sided at 5 %, both means with the sample standard deviation ``std``: the difference δ at which
    P(|T| > t(0.975, 2n − 2)) = 0.8 for T noncentral t with 2n − 2 degrees of freedom and noncentrality
    δ / (std · √(2/n)). None below two seeds, where there is no test.
    """
    if seeds < 2:
        return None
    from scipy.optimize import brentq  # half a second, for the noise stage alone
    from scipy.special import nctdtr, stdtrit

    freedom = 2 * seeds - 2
    critical = float(stdtrit(freedom, 1 - LEVEL / 2))

    def lack(noncentrality: float) -> float:
        inside = nctdtr(freedom, noncentrality, critical) - nctdtr(freedom, noncentrality, -critical)
        return float(1 - inside) - POWER

    return std * math.sqrt(2 / seeds) * float(brentq(lack, 0, critical + 4))
