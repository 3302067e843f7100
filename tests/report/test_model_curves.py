"""Areas, rates, quantiles and overlaps, against plain loops over pairs.

Shapes: B bins of cosine similarity.
"""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from search.report.ranked_test import auc, distance_quantile, overlap, true_positive_rates
from search.selection.retrieval_file import EDGES

BINS = len(EDGES) - 1
NOBODY = np.zeros(BINS, dtype=np.int64)


def counts(seed: int, pairs: int, *, middle: int) -> np.ndarray:
    """Pairs in few bins, so that many are tied."""
    generator = np.random.default_rng(seed)
    return np.bincount((middle + generator.integers(-6, 7, pairs)).clip(0, BINS - 1), minlength=BINS)


@pytest.fixture(params=[(1000, 996), (500, 500), (BINS - 1, 0), (3, 900)])
def both(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    same, other = request.param
    return counts(0, 40, middle=same), counts(1, 70, middle=other)


def pairs_of(counts_B: np.ndarray) -> list[int]:
    return [place for place, count in enumerate(counts_B.tolist()) for _ in range(count)]


def test_auc_is_the_share_of_pairs_in_order(both: tuple[np.ndarray, np.ndarray]) -> None:
    same, other = map(pairs_of, both)
    naive = sum(1.0 if s > o else 0.5 if s == o else 0.0 for s in same for o in other) / len(same) / len(other)
    assert auc(*both) == pytest.approx(naive, abs=1e-12)
    assert auc(*both) == pytest.approx(roc_auc_score([1] * len(same) + [0] * len(other), same + other), abs=1e-12)


def test_a_rate_is_the_best_that_a_threshold_reaches(both: tuple[np.ndarray, np.ndarray]) -> None:
    same, other = map(pairs_of, both)
    points = [
        (sum(o >= bound for o in other) / len(other), sum(s >= bound for s in same) / len(same))
        for bound in range(BINS + 1)
    ]
    for rate in {rate for rate, _ in points}:
        best = max(found for at, found in points if at == rate)
        assert true_positive_rates(*both, np.array([rate]))[0] == pytest.approx(best, abs=1e-12)
    between = true_positive_rates(*both, np.linspace(0, 1, 50))
    assert (np.diff(between) >= -1e-12).all()
    assert between[-1] == 1


def test_quantiles_of_distances_lie_in_the_bin_of_the_sorted_pair(both: tuple[np.ndarray, np.ndarray]) -> None:
    for counts_B in both:
        distances = sorted(1 - EDGES[place + 1] for place in pairs_of(counts_B))  # the nearer end of its bin
        for share in (0.05, 0.5, 0.95):
            nearer = distances[int(np.ceil(share * len(distances))) - 1]
            found = distance_quantile(counts_B, share)
            assert nearer - 1e-12 <= found <= nearer + (EDGES[1] - EDGES[0]) + 1e-12


def test_overlap_is_what_two_distributions_share(both: tuple[np.ndarray, np.ndarray]) -> None:
    same, other = map(pairs_of, both)
    shares = [(same.count(place) / len(same), other.count(place) / len(other)) for place in range(BINS)]
    assert overlap(*both) == pytest.approx(sum(min(pair) for pair in shares))
    assert overlap(both[0], both[0]) == pytest.approx(1)


def test_without_pairs_there_is_no_number() -> None:
    some = counts(0, 10, middle=500)
    for found in (auc(some, NOBODY), auc(NOBODY, some), overlap(NOBODY, some), distance_quantile(NOBODY, 0.5)):
        assert np.isnan(found)
    assert np.isnan(true_positive_rates(NOBODY, some, np.array([0.1]))).all()
