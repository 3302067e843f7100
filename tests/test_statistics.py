"""Statistics against closed forms, and against simulation."""

import math

import numpy as np
import pytest

from search.statistics.interval import over_seeds


def test_mean_deviation_and_interval_of_three() -> None:
    # t(0.975, 2) = 4.302653 and s = 1: the half width is 4.302653 / √3.
    found = over_seeds([1.0, 2.0, 3.0])
    assert found["mean"] == 2
    assert found["std"] == pytest.approx(1)
    assert found["ci95"] == pytest.approx([2 - 4.302652729911275 / math.sqrt(3), 2 + 4.302652729911275 / math.sqrt(3)])
    assert found["values"] == [1.0, 2.0, 3.0]


def test_one_value_has_neither_deviation_nor_interval() -> None:
    assert over_seeds([0.5]) == {"mean": 0.5, "std": None, "ci95": None, "values": [0.5]}


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_cover_the_truth_95_times_in_100(seeds: int) -> None:
    generator = np.random.default_rng(0)
    draws = generator.normal(0.6, 0.03, (4000, seeds))
    covered = [low <= 0.6 <= high for low, high in (over_seeds(row)["ci95"] for row in draws.tolist())]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.012)  # 3.5 standard errors of 4,000 draws
