"""The smallest difference that a budget of seeds can be expected to show."""

import numpy as np

from search.report.statistics.contrasts import LEVEL, SEEDS_LENT, shrunk

POWER = 0.8
TABLES = 20_000


def minimum_detectable_difference(std: float, *, seeds: int, rows: int, pairs: int) -> float | None:
    """The difference that the test of a pair finds with probability 80 % among ``pairs`` pairs of ``rows`` rows.

    It is the 80 % quantile, over tables of rows whose seeds have the deviation ``std``, of what the test needs (see
    :mod:`search.report.statistics.contrasts`) beyond what the noise gives: the test classes' own noise comes on top.
    None below two seeds, where there is no test.
    """
    if seeds < 2:
        return None
    if std == 0:
        return 0.0
    from scipy.special import stdtrit  # for the noise stage alone

    generator = np.random.default_rng(0)
    freedom = seeds - 1
    own_BR = std**2 * generator.chisquare(freedom, (TABLES, rows)) / freedom
    variance_BR, freedom_BR = shrunk(own_BR, freedom, own_BR.mean(1, keepdims=True), SEEDS_LENT)
    most = rows * freedom - 1
    first_two_B2 = variance_BR[:, :2] / seeds
    variance_B = first_two_B2.sum(1)
    freedom_B = variance_B**2 / (first_two_B2**2 / np.minimum(freedom_BR[:, :2], most)).sum(1)
    needed_B = stdtrit(np.minimum(freedom_B, most), 1 - LEVEL / (2 * pairs)) * np.sqrt(variance_B)
    return float(np.quantile(needed_B - std * (2 / seeds) ** 0.5 * generator.standard_normal(TABLES), POWER))
