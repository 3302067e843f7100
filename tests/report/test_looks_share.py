"""The looks at a test share its error, and end where more seeds could decide nothing."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from search.config.stage_sections import FinalSection
from search.report.pairs import is_open
from search.report.scored import Look, share_of
from search.report.statistics import LEVEL, Estimate, ScoredRows


@pytest.mark.parametrize("at_most", range(3, 14))
def test_the_looks_use_the_whole_error(at_most: int) -> None:
    looks = FinalSection(seeds="auto", at_most=at_most).looks
    assert looks[-1] == at_most
    assert list(looks) == sorted(set(looks))
    assert math.fsum(share_of(seeds, looks) for seeds in looks) == pytest.approx(1)


def test_a_number_of_seeds_is_one_look() -> None:
    assert FinalSection(seeds=4).looks == (4,)


def estimate(value: float, *, classes: float, seeds: float, tests: float) -> Estimate:
    half = norm.ppf(1 - LEVEL / (2 * tests)) * math.sqrt(classes + seeds)
    p = 2 * norm.sf(abs(value) / math.sqrt(classes + seeds))
    return Estimate(
        value=value, ci95=(value - half, value + half), p=p, tests=tests, variance=classes + seeds, of_seeds=seeds
    )


LOOK = Look(seeds=3, of=(3, 9))


def opened(value: float, *, classes: float, seeds: float, margin: float | None = None) -> bool:
    return is_open(estimate(value, classes=classes, seeds=seeds, tests=1 / LOOK.share), LOOK, 1, margin)


def test_a_pair_is_open_if_more_seeds_could_decide_it() -> None:
    assert opened(1.5, classes=0.0, seeds=1.0), "with three times the seeds its deviation is 0.58"
    assert not opened(2.5, classes=2.0, seeds=0.01), "the classes alone are too noisy"
    assert not opened(10.0, classes=0.0, seeds=1.0), "it differs already"
    assert not opened(0.0, classes=0.0, seeds=1.0), "it would have to move by more than its deviation"
    assert opened(0.0, classes=0.0, seeds=1.0, margin=1.5), "but then it may be shown to be the same"
    assert not opened(0.0, classes=0.0, seeds=1.0, margin=99.0), "it is the same already"


def test_after_the_last_look_nothing_is_open() -> None:
    last = Look(seeds=9, of=LOOK.of)
    assert not is_open(estimate(2.5, classes=0.0, seeds=2.0, tests=1 / last.share), last, 1, None)


def test_the_variance_of_the_seeds_falls_with_their_number() -> None:
    generator = np.random.default_rng(0)
    counts_C = np.full(20, 10)
    scores_RSC = generator.normal(size=(2, 400, 1)) + np.zeros(20)
    parts = [
        ScoredRows({row: sums * 10 for row, sums in enumerate(scores_RSC[:, :seeds])}, counts_C)
        .contrast({0: 1, 1: -1})
        .of_seeds
        for seeds in (100, 400)
    ]
    assert parts[0] / parts[1] == pytest.approx(4, rel=0.3)
