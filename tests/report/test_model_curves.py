"""Quantiles and overlaps of distances, against plain loops over pairs.

Shapes: B bins of cosine similarity.
"""

import numpy as np
import pytest

from search.report.rankings import distance_quantile, overlap
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
    assert np.isnan(overlap(NOBODY, some))
    assert np.isnan(distance_quantile(NOBODY, 0.5))
