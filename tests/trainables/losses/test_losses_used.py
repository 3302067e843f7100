"""Counts of pairs, triplets and samples that losses report, against plain loops, and the miners that choose them.

Shapes: B batch, D embedding, T triplets.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from support.loss_loops import D, Matrix, batch_of, beside_the_boundary, informative, others, similarities

from trainables.losses import LOSSES
from trainables.losses.loss import Loss, cosines, same_and_different
from trainables.losses.mining import MINERS, Miner, Pairs, distance_weighted, most_pairs, uniform

Count = Callable[[Matrix, list[int]], int]


def positive_pairs(y: list[int]) -> list[tuple[int, int]]:
    return [(a, p) for a in range(len(y)) for p in others(y, a)[0]]


def all_pairs(s: Matrix, y: list[int]) -> int:
    return len([(i, j) for j in range(len(y)) for i in range(j)])


def all_triplets(s: Matrix, y: list[int]) -> int:
    return len([(a, p, n) for a, p in positive_pairs(y) for n in others(y, a)[1]])


def one_negative(s: Matrix, y: list[int]) -> int:
    return len([(a, p) for a, p in positive_pairs(y) if others(y, a)[1]])


def semi_hard(s: Matrix, y: list[int]) -> int:
    return len([(a, p) for a, p in positive_pairs(y) if any(s[a][n] < s[a][p] for n in others(y, a)[1])])


def hard(s: Matrix, y: list[int]) -> int:
    return len([a for a in range(len(y)) if all(others(y, a))])


def ordered_pairs(s: Matrix, y: list[int]) -> int:
    return len([(i, j) for i in range(len(y)) for j in range(len(y)) if i != j])


def pairs_of_whole_anchors(s: Matrix, y: list[int]) -> int:
    return len([(i, j) for i in range(len(y)) if all(others(y, i)) for j in range(len(y)) if i != j])


def within(s: Matrix, y: list[int]) -> int:
    return sum(len(part) for i in range(len(y)) for part in informative(s, y, i, 0.1))


def misplaced(k: int) -> Count:
    """Count misplaced samples, of which there are as many positives as negatives."""

    def count(s: Matrix, y: list[int]) -> int:
        found = [beside_the_boundary(s, y, i, k, 0.1) for i in range(len(y))]
        assert all(len(positives) == len(negatives) for positives, negatives in found)
        return sum(len(positives) for positives, _ in found)

    return count


COUNTS: dict[str, tuple[str, dict[str, Any], str, Count]] = {
    "contrastive": ("contrastive", {}, "pairs", all_pairs),
    "triplet, all": ("triplet", {"mining": "all"}, "triplets", all_triplets),
    "triplet, semi-hard": ("triplet", {"mining": "semi_hard"}, "triplets", semi_hard),
    "triplet, hard": ("triplet", {"mining": "hard"}, "triplets", hard),
    "triplet, uniform": ("triplet", {"mining": "uniform"}, "triplets", one_negative),
    "triplet, distance-weighted": ("triplet", {"mining": "distance_weighted"}, "triplets", one_negative),
    "margin, distance-weighted": ("margin", {"mining": "distance_weighted"}, "triplets", one_negative),
    "margin, all": ("margin", {"mining": "all"}, "pairs", all_pairs),
    "Multi-Similarity": ("multi_similarity", {"epsilon": 0.1}, "pairs", within),
    "Multi-Similarity, all": ("multi_similarity", {"epsilon": None}, "pairs", ordered_pairs),
    "lifted structure": ("lifted_structure", {"mining": "all"}, "pairs", pairs_of_whole_anchors),
    "lifted structure, hard": ("lifted_structure", {"mining": "hard"}, "pairs", within),
    "top-5 precision": ("topk_precision", {"k": 5}, "triplets", misplaced(5)),
    "top-1 precision": ("topk_precision", {"k": 1}, "triplets", misplaced(1)),
}


def built(name: str, **params: Any) -> Loss:
    return LOSSES[name](num_classes=6, embedding_dim=D, **params).double()


@pytest.mark.parametrize("case", COUNTS)
@settings(max_examples=10, deadline=None)
@example(labels=[2] * 5, seed=2)
@example(labels=[4, 1, 0, 5], seed=3)
@example(labels=[1], seed=0)
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=16), seed=st.integers(0, 10_000))
def test_a_loss_counts_what_loops_count(case: str, labels: list[int], seed: int) -> None:
    name, params, unit, count = COUNTS[case]
    embeddings_BD, labels_B = batch_of(labels, seed)
    loss = built(name, **params)
    for loss.most_pairs in (None, most_pairs([labels_B]) + 6):
        loss(embeddings_BD, labels_B)
        assert loss.used is not None
        assert loss.used.unit == unit
        assert int(loss.used.count) == count(similarities(embeddings_BD, embeddings_BD), labels)


def test_every_loss_that_counts_is_counted_here_and_no_other_counts() -> None:
    embeddings_BD, labels_B = batch_of([0, 0, 1, 1, 2, 2, 3, 3], 0)
    counting = set()
    for name in LOSSES:
        loss = built(name)
        assert loss.used is None
        loss(embeddings_BD, labels_B)
        if loss.used is not None:
            counting.add(name)
    assert counting == {name for name, *_ in COUNTS.values()}


# Miners return the pairs and triplets of their definition.


def pairs_of(similarities_BB: torch.Tensor, labels: list[int], dimensions: int, most: int | None = None) -> Pairs:
    same_BB, different_BB = same_and_different(torch.tensor(labels))
    return Pairs(
        similarities_BB=similarities_BB, same_BB=same_BB, different_BB=different_BB, dimensions=dimensions, most=most
    )


@pytest.mark.parametrize("name", MINERS)
@settings(max_examples=15, deadline=None)
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=12), seed=st.integers(0, 1000))
def test_triplets_are_triplets(name: str, labels: list[int], seed: int) -> None:
    embeddings_BD, labels_B = batch_of(labels, seed)
    *triplets_T, mined_T = MINERS[name](pairs_of(cosines(embeddings_BD), labels, D, most_pairs([labels_B]) + 3))
    triplets = list(zip(*(positions_T[mined_T].tolist() for positions_T in triplets_T)))
    for a, p, n in triplets:
        assert a != p
        assert labels[a] == labels[p] != labels[n]
    if name in ("uniform", "distance_weighted"):
        assert [(a, p) for a, p, _ in triplets] == [(a, p) for a, p in positive_pairs(labels) if others(labels, a)[1]]


def drawn(miner: Miner, similarities_BB: torch.Tensor, dimensions: int, times: int = 1000) -> Counter[int]:
    """Count the draws of each negative 2, 3, … of anchor 0; 0 and 1 are the only positive pair."""
    torch.manual_seed(0)
    pairs = pairs_of(similarities_BB, [0, 0, *range(1, len(similarities_BB) - 1)], dimensions)
    counts: Counter[int] = Counter()
    for _ in range(times):
        anchor_T, _, negative_T, _ = miner(pairs)
        counts[negative_T[anchor_T == 0].item()] += 1
    return counts


def test_uniform_draws_every_negative_alike() -> None:
    counts = drawn(uniform, torch.eye(6), 8)
    assert all(abs(count / 1000 - 1 / 4) < 0.04 for count in counts.values())
    assert len(counts) == 4


def test_distance_weighted_draws_in_inverse_proportion_to_density() -> None:
    """Compare with q(d) ∝ d^{D−2} (1 − d²/4)^{(D−3)/2} (Wu et al.), d at least the cutoff and at most 1.4."""
    similarities_BB = torch.eye(7)
    similarities_BB[0, 2:] = torch.tensor([0.95, 0.5, 0.4, 0.3, -0.5])
    counts = drawn(distance_weighted, similarities_BB, 8)
    distances = [max(math.sqrt(2 - 2 * s), 0.5) for s in (0.95, 0.5, 0.4, 0.3)]
    weights = [1 / (d**6 * (1 - d * d / 4) ** 2.5) for d in distances]
    assert counts[6] == 0
    for index, weight in enumerate(weights, start=2):
        assert counts[index] / 1000 == pytest.approx(weight / sum(weights), abs=0.04)


def test_distance_weighted_draws_from_far_negatives_where_there_are_no_others() -> None:
    similarities_BB = -torch.ones(5, 5)
    counts = drawn(distance_weighted, similarities_BB, 512, times=200)
    assert set(counts) == {2, 3, 4}
