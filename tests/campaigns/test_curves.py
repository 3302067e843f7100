"""Anytime curves of ways to search."""

import numpy as np
import pytest
from numpy.typing import NDArray

from search.campaigns.curves import certain_cost_ratio, cost_ratio, curve_of, epochs_to_reach, mean_curve
from search.report.loss_results import Incumbent


def test_a_curve_is_the_running_maximum() -> None:
    steps = [Incumbent(epochs=at, value=value, trial=0, confirmed=None) for at, value in ((2, 0.1), (3, 0.4), (5, 0.5))]
    assert curve_of(steps, 6).tolist() == [-np.inf, 0.1, 0.4, 0.4, 0.5, 0.5]
    assert curve_of((), 0).size == 0


def test_a_mean_curve_goes_as_far_as_all_curves_do() -> None:
    curves = [np.array([0.1, 0.3, 0.4, 0.4]), np.array([0.3, 0.3, 0.6])]
    assert mean_curve(curves) == pytest.approx([0.2, 0.3, 0.5])


def test_the_cost_ratio_compares_epochs_to_the_same_value() -> None:
    fast, slow = np.array([0.2, 0.5, 0.5, 0.6]), np.array([0.1, 0.2, 0.3, 0.5])
    assert epochs_to_reach(fast, 0.5) == 2
    assert cost_ratio(fast, slow) == 0.5
    assert cost_ratio(slow, fast) is None
    assert cost_ratio(slow, slow) == 1


def made_curves(generator: np.random.Generator, speed: float) -> list[NDArray[np.float64]]:
    """Five searches of 40 epochs: the best so far of values that rise to 1."""
    epochs = np.arange(1, 41)
    return [np.maximum.accumulate(1 - np.exp(-speed * epochs / 40) + generator.normal(0, 0.02, 40)) for _ in range(5)]


def test_equal_ways_to_search_have_no_cost_ratio_and_a_faster_one_has() -> None:
    generator = np.random.default_rng(0)
    alike = [certain_cost_ratio(made_curves(generator, 3), made_curves(generator, 3)) for _ in range(100)]
    assert sum(ratio is not None for ratio in alike) <= 11  # 5 in 100 and three standard errors
    faster = [certain_cost_ratio(made_curves(generator, 8), made_curves(generator, 3)) for _ in range(10)]
    assert all(ratio is not None and ratio < 0.7 for ratio in faster)
    three = made_curves(generator, 8)[:3]
    assert certain_cost_ratio(three, made_curves(generator, 3)[:3]) is None
