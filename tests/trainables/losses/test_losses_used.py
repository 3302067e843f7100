"""Counts of pairs, triplets and samples that losses report, against plain loops.

Shapes: B batch, D embedding.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from support.loss_loops import D, Matrix, batch_of, beside_the_boundary, informative, others, similarities

from trainables.losses import LOSSES
from trainables.losses.base import Loss

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
