"""The paired bootstrap against plain loops and scipy, and its error rates in simulation."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ttest_rel

from search.report.statistics.bootstrap import paired_bootstrap
from search.report.statistics.holm import holm

Scores = dict[int, NDArray[np.float64]]
ONES = np.ones(40, dtype=np.int64)


def shifted(scores: Scores, by: float) -> Scores:
    return {seed: values + by for seed, values in scores.items()}


def noise(generator: np.random.Generator, seeds: int, classes: int, seed_sd: float, class_sd: float) -> Scores:
    """Differences of class means: each seed and each class has an effect of its own, and so has each pair of them."""
    effects = generator.normal(0, class_sd, classes)
    return {
        seed: effects + generator.normal(0, seed_sd) + generator.normal(0, class_sd / 2, classes)
        for seed in range(seeds)
    }


def test_agreement_with_plain_loops() -> None:
    generator = np.random.default_rng(0)
    counts = generator.integers(1, 9, 12)
    first, second = ({seed: generator.random(12) * counts for seed in (5, 7, 8)} for _ in range(2))
    second[9] = generator.random(12) * counts  # a seed that the first has not
    (found,) = paired_bootstrap({"a": first, "b": second}, counts, [("a", "b")])
    by_seed = [(first[seed].sum() - second[seed].sum()) / counts.sum() for seed in (5, 7, 8)]
    assert found.seeds == 3
    assert found.difference == pytest.approx(np.mean(by_seed))
    beyond, deviations, draws = 0, [], 4000
    for _ in range(draws):
        classes = generator.integers(0, 12, 12)
        total, queries = 0.0, sum(counts[number] for number in classes)
        for seed in generator.choice([5, 7, 8], 3):
            total += sum(first[seed][number] - second[seed][number] for number in classes) / queries / 3
        deviations.append(abs(total - found.difference))
        beyond += deviations[-1] >= abs(found.difference)
    assert found.p_bootstrap == pytest.approx((beyond + 1) / (draws + 1), abs=0.03)
    means = [[scores[seed].sum() / counts.sum() for seed in (5, 7, 8)] for scores in (first, second)]
    paired = ttest_rel(*means)
    assert found.p_seeds == pytest.approx(paired.pvalue)
    assert found.p == max(found.p_bootstrap, paired.pvalue)
    half = max(np.quantile(deviations, 0.95), np.diff(paired.confidence_interval(0.95))[0] / 2)
    assert found.ci95 == pytest.approx((found.difference - half, found.difference + half), rel=0.05)


def test_one_seed_speaks_of_the_classes_alone() -> None:
    generator = np.random.default_rng(1)
    first = {0: generator.normal(0.5, 0.1, 1000)}
    second = {0: generator.normal(0.5, 0.1, 1000)}
    (found,) = paired_bootstrap({"a": first, "b": second}, np.ones(1000, dtype=np.int64), [("a", "b")])
    paired = ttest_rel(first[0], second[0])  # many classes: the bootstrap and Student's t agree
    assert found.p_seeds is None
    assert found.p == found.p_bootstrap == pytest.approx(paired.pvalue, abs=0.01)
    assert found.ci95 == pytest.approx(tuple(paired.confidence_interval(0.95)), abs=2e-4)


def test_the_same_scores_do_not_differ_and_a_shift_does() -> None:
    scores = noise(np.random.default_rng(2), 3, 40, 0.1, 0.1)
    rows = {"a": scores, "b": dict(scores), "c": shifted(scores, 0.01)}
    same, shift = paired_bootstrap(rows, ONES, [("a", "b"), ("a", "c")])
    assert (same.difference, same.p, same.ci95) == (0, 1, (0, 0))
    assert shift.p == 1 / 20_001, "pairing takes out what classes and seeds have in common"
    assert shift.difference == pytest.approx(-0.01)


def test_a_pair_turned_round_and_the_same_call_again() -> None:
    generator = np.random.default_rng(3)
    rows = {name: noise(generator, 2, 40, 0.1, 0.1) for name in "ab"}
    there, back = paired_bootstrap(rows, ONES, [("a", "b"), ("b", "a")])
    assert (back.difference, back.p) == (-there.difference, there.p)
    assert paired_bootstrap(rows, ONES, [("a", "b"), ("b", "a")]) == [there, back]


@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize(
    ("seed_sd", "class_sd"), [(0.0, 1.0), (1.0, 0.1), (0.1, 0.6)], ids=["classes", "seeds", "both"]
)
def test_a_true_zero_is_rarely_called_a_difference(seeds: int, seed_sd: float, class_sd: float) -> None:
    """At most 5 in 100 by design; 7.5 leaves three standard errors of 600 tables."""
    generator = np.random.default_rng(4)
    rows = {table: noise(generator, seeds, 40, seed_sd, class_sd) for table in range(600)}
    zero: Scores = {seed: np.zeros(40) for seed in range(seeds)}
    pairs = [(table, -1) for table in range(600)]
    found = paired_bootstrap({**rows, -1: zero}, ONES, pairs, draws=800)
    assert np.mean([entry.p <= 0.05 for entry in found]) <= 0.075
    assert np.mean([entry.ci95[0] <= 0 <= entry.ci95[1] for entry in found]) >= 0.925
    if seed_sd > class_sd:
        assert np.mean([entry.p_bootstrap <= 0.05 for entry in found]) > 0.15, "the bootstrap alone would do"


def test_holm_by_its_definition() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1, 1]
    assert holm([]) == []
    p_values = np.random.default_rng(5).random(7).tolist()
    corrected = holm(p_values)
    for level in np.linspace(0.01, 0.99, 99):  # step down: reject the smallest while it is below level / what is left
        left, rejected = sorted(p_values), set()
        while left and left[0] <= level / len(left):
            rejected.add(left.pop(0))
        assert {p for p, q in zip(p_values, corrected, strict=True) if q <= level} == rejected
