"""Statistics against closed forms, and against simulation."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import sem, t

from search.report.rows import SeedStatistics
from search.report.statistics import over_seeds
from trainables.metrics.table import is_bounded


def test_mean_deviation_and_interval_of_three() -> None:
    # t(0.975, 2) = 4.302653 and s = 1: the half width is 4.302653 / √3.
    found = over_seeds([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.std == pytest.approx(1)
    assert found.ci95 == pytest.approx((2 - 4.302652729911275 / math.sqrt(3), 2 + 4.302652729911275 / math.sqrt(3)))
    assert found.values == (1.0, 2.0, 3.0)
    assert found.seeds == 3


def test_one_value_has_neither_deviation_nor_interval() -> None:
    assert over_seeds([0.5]) == SeedStatistics(mean=0.5, std=None, ci95=None, seeds=1, values=(0.5,))


def test_folds_of_a_seed_are_one_draw_of_the_interval() -> None:
    values = [0.1, 0.3, 0.2, 0.6, 0.4, 0.8]
    found = over_seeds(values, [7, 7, 8, 8, 9, 9])
    expected = t.interval(0.95, 2, np.mean([0.2, 0.4, 0.6]), sem([0.2, 0.4, 0.6]))
    assert found.ci95 == pytest.approx(expected)
    assert (found.mean, found.std, found.seeds) == (pytest.approx(0.4), pytest.approx(np.std(values, ddof=1)), 3)
    assert over_seeds([0.1, 0.3], [7, 7]).ci95 is None


def test_intervals_of_metrics_stay_between_0_and_1() -> None:
    """Against the logit scale in numpy and scipy: logit m ± t s / √n / (m (1 − m)), and back."""
    for values in ([0.97, 0.99, 0.999], [0.01, 0.4], [0.5, 0.52, 0.55, 0.7], [0.0, 0.001], [0.3, 1.0]):
        found = over_seeds(values, bounded=True).ci95
        assert found is not None
        mean = np.mean(values)
        scale = sem(values) / (mean * (1 - mean))
        assert found == pytest.approx(expit(t.interval(0.95, len(values) - 1, logit(mean), scale)))
        assert 0 <= found[0] < mean < found[1] <= 1
    assert min(over_seeds([0.01, 0.4]).ci95 or ()) < 0, "other metrics keep to Student's t"
    assert over_seeds([1.0, 1.0], bounded=True).ci95 == (1, 1)
    assert over_seeds([0.0, 0.0], bounded=True).ci95 == (0, 0)


def test_which_metrics_are_bounded() -> None:
    assert all(map(is_bounded, ("recall_at_1", "map_at_r", "ndcg_at_20", "map", "nmi", "f1")))
    assert not any(map(is_bounded, ("dists_intra", "dists_ratio", "hubness")))


def covers(found: SeedStatistics, truth: float) -> bool:
    assert found.ci95 is not None
    low, high = found.ci95
    return low <= truth <= high


def test_intervals_of_correlated_folds_cover_the_truth() -> None:
    """What a seed does to all of its folds, and what a fold is like for all seeds; the folds are always the same."""
    generator = np.random.default_rng(1)
    seeds, folds = np.repeat([0, 1, 2], 5), np.tile([0.04, 0.02, 0, -0.02, -0.04], 3)
    by_seed = np.repeat(generator.normal(0, 0.03, (1500, 3)), 5, axis=1)
    draws = 0.6 + by_seed + folds + generator.normal(0, 0.01, (1500, 15))

    def coverage(of: Sequence[int] | None) -> float:
        return float(np.mean([covers(over_seeds(row, of), 0.6) for row in draws.tolist()]))

    assert coverage(seeds.tolist()) == pytest.approx(0.95, abs=0.02)
    assert coverage(None) < 0.85, "folds taken for independent draws would cover it just as well"
