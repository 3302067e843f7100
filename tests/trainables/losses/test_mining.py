"""Miners return the pairs and triplets of their definition.

Shapes: B batch, T triplets.
"""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings, strategies as st

from trainables.losses.base import cosines, same_and_different
from trainables.losses.mining import MINERS, Miner, Pairs, distance_weighted, most_pairs, uniform

DIMENSIONS = 16


def batch(labels: list[int], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    embeddings_BD = torch.randn(len(labels), DIMENSIONS, generator=torch.Generator().manual_seed(seed))
    return cosines(embeddings_BD.double()), *same_and_different(torch.tensor(labels))


@pytest.mark.parametrize("name", MINERS)
@settings(max_examples=15, deadline=None)
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=12), seed=st.integers(0, 1000))
def test_triplets_are_triplets(name: str, labels: list[int], seed: int) -> None:
    similarities_BB, same_BB, different_BB = batch(labels, seed)
    spare = 3
    most = most_pairs([torch.tensor(labels)]) + spare
    batched = Pairs(similarities_BB=similarities_BB, same_BB=same_BB, different_BB=different_BB, most=most)
    *triplets_T, mined_T = MINERS[name](DIMENSIONS)(batched)
    triplets = list(zip(*(positions_T[mined_T].tolist() for positions_T in triplets_T)))
    for a, p, n in triplets:
        assert a != p
        assert labels[a] == labels[p] != labels[n]
    pairs = [(a, p) for a in range(len(labels)) for p in range(len(labels)) if a != p and labels[a] == labels[p]]
    with_negative = [(a, p) for a, p in pairs if any(other != labels[a] for other in labels)]
    found = [(a, p) for a, p, _ in triplets]
    if name in ("uniform", "distance_weighted"):
        assert found == with_negative


def drawn(miner: Miner, similarities_BB: torch.Tensor, times: int = 1000) -> Counter[int]:
    """Count the draws of each negative 2, 3, … of anchor 0; 0 and 1 are the only positive pair."""
    torch.manual_seed(0)
    same_BB, different_BB = same_and_different(torch.tensor([0, 0, *range(1, len(similarities_BB) - 1)]))
    pairs = Pairs(similarities_BB=similarities_BB, same_BB=same_BB, different_BB=different_BB)
    counts: Counter[int] = Counter()
    for _ in range(times):
        anchor_T, _, negative_T, _ = miner(pairs)
        counts[negative_T[anchor_T == 0].item()] += 1
    return counts


def test_uniform_draws_every_negative_alike() -> None:
    counts = drawn(uniform, torch.eye(6))
    assert all(abs(count / 1000 - 1 / 4) < 0.04 for count in counts.values())
    assert len(counts) == 4


def test_distance_weighted_draws_in_inverse_proportion_to_density() -> None:
    """Compare with q(d) ∝ d^{D−2} (1 − d²/4)^{(D−3)/2} (Wu et al.), d at least the cutoff and at most 1.4."""
    similarities_BB = torch.eye(7)
    similarities_BB[0, 2:] = torch.tensor([0.95, 0.5, 0.4, 0.3, -0.5])
    counts = drawn(distance_weighted(8), similarities_BB)
    distances = [max(math.sqrt(2 - 2 * s), 0.5) for s in (0.95, 0.5, 0.4, 0.3)]
    weights = [1 / (d**6 * (1 - d * d / 4) ** 2.5) for d in distances]
    assert counts[6] == 0
    for index, weight in enumerate(weights, start=2):
        assert counts[index] / 1000 == pytest.approx(weight / sum(weights), abs=0.04)


def test_distance_weighted_draws_from_far_negatives_where_there_are_no_others() -> None:
    similarities_BB = -torch.ones(5, 5)
    counts = drawn(distance_weighted(512), similarities_BB, times=200)
    assert set(counts) == {2, 3, 4}
