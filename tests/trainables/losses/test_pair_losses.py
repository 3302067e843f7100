"""Losses of pairs, against plain loops in float64.

Shapes: B batch, D embedding.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from trainables.losses import LOSSES
from trainables.losses.pairs import PairLoss

D = 6
BATCHES = ([0, 0, 1, 1, 2, 3, 2], [3, 1, 3, 4, 0, 0, 1], [5, 5, 5, 2, 2, 1, 0], [0, 1, 2, 3, 4, 5, 0])

Vector = list[float]
Sample = tuple[Vector, int]
Term = Callable[[Sample, list[Sample], list[Sample]], Iterator[float]]
"""The terms of an anchor with its positives and negatives."""


def dot(u: Vector, v: Vector) -> float:
    return sum(a * b for a, b in zip(u, v, strict=True))


def unit(u: Vector) -> Vector:
    return [a / math.sqrt(dot(u, u)) for a in u]


def contrastive(x: Sample, positives: list[Sample], negatives: list[Sample]) -> Iterator[float]:
    yield from (-dot(x[0], p[0]) for p in positives)
    yield from (max(dot(x[0], n[0]) - 0.5, 0) for n in negatives)


def triplet(x: Sample, positives: list[Sample], negatives: list[Sample]) -> Iterator[float]:
    yield from (max(dot(x[0], n[0]) - dot(x[0], p[0]) + 0.1, 0) for p in positives for n in negatives)


def semi_hard(x: Sample, positives: list[Sample], negatives: list[Sample]) -> Iterator[float]:
    for p in positives:
        if below := [dot(x[0], n[0]) for n in negatives if dot(x[0], n[0]) < dot(x[0], p[0])]:
            yield max(max(below) - dot(x[0], p[0]) + 0.1, 0)


def margin(x: Sample, positives: list[Sample], negatives: list[Sample]) -> Iterator[float]:
    yield from (max(0.5 + math.sqrt(2 - 2 * dot(x[0], p[0])) - 1.25, 0) for p in positives)
    yield from (max(0.5 - math.sqrt(2 - 2 * dot(x[0], n[0])) + 1.25, 0) for n in negatives)


def npair(x: Sample, positives: list[Sample], negatives: list[Sample]) -> Iterator[float]:
    yield math.log(1 + sum(math.exp(dot(x[0], n[0]) - dot(x[0], p[0])) for p in positives for n in negatives))


def lifted(x: Sample, positives: list[Sample], negatives: list[Sample]) -> Iterator[float]:
    if not (positives and negatives):
        yield 0.0
        return
    pull = math.log(sum(math.exp(0.5 - dot(x[0], p[0])) for p in positives))
    yield max(pull + math.log(sum(math.exp(dot(x[0], n[0])) for n in negatives)), 0)


def multi_similarity(x: Sample, positives: list[Sample], negatives: list[Sample]) -> Iterator[float]:
    of_positives, of_negatives = ([dot(x[0], other[0]) for other in others] for others in (positives, negatives))
    hard_positives = [s for s in of_positives if s < max(of_negatives, default=-math.inf) + 0.1]
    hard_negatives = [s for s in of_negatives if s > min(of_positives, default=math.inf) - 0.1]
    pull = math.log(1 + sum(math.exp(-2 * (s - 0.5)) for s in hard_positives)) / 2
    yield pull + math.log(1 + sum(math.exp(50 * (s - 0.5)) for s in hard_negatives)) / 50


def angular(x: Sample, positives: list[Sample], negatives: list[Sample]) -> Iterator[float]:
    for p in positives:  # tan² 45° is 1
        both = [a + b for a, b in zip(x[0], p[0], strict=True)]
        yield math.log(1 + sum(math.exp(4 * dot(both, n[0]) - 4 * dot(x[0], p[0])) for n in negatives))


CASES: dict[str, tuple[str, dict[str, Any], Term]] = {
    "contrastive": ("contrastive", {}, contrastive),
    "triplet": ("triplet", {"mining": "all"}, triplet),
    "triplet, semi-hard": ("triplet", {"mining": "semi_hard"}, semi_hard),
    "margin": ("margin", {"mining": "all", "beta": 1.25}, margin),
    "npair": ("npair", {"l2": 0.0}, npair),
    "lifted structure": ("lifted_structure", {}, lifted),
    "Multi-Similarity": ("multi_similarity", {}, multi_similarity),
    "angular": ("angular", {}, angular),
}


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    labels_B = torch.tensor(BATCHES[step])
    return torch.randn(len(labels_B), D, generator=generator, dtype=torch.float64), labels_B


def naive(term: Term, samples: Sequence[Sample]) -> float:
    """Return the mean of the terms."""
    terms: list[float] = []
    for i, x in enumerate(samples):
        others = [sample for j, sample in enumerate(samples) if j != i]
        same, different = ([s for s in others if (s[1] == x[1]) is wanted] for wanted in (True, False))
        terms += term(x, same, different)
    return sum(terms) / max(len(terms), 1)


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_loops(case: str) -> None:
    name, params, term = CASES[case]
    loss = LOSSES[name](num_classes=6, embedding_dim=D, **params).double()
    for step in range(len(BATCHES)):
        embeddings_BD, labels_B = batch(step)
        embeddings_BD.requires_grad_()
        value = loss(embeddings_BD, labels_B)
        value.backward()

        raw, labels = embeddings_BD.tolist(), labels_B.tolist()
        samples = [(unit(row), label) for row, label in zip(raw, labels, strict=True)]
        assert value.item() == pytest.approx(naive(term, samples), rel=1e-9)
        values = []
        for change in (1e-6, -1e-6):
            row = [a + change * (d == 2) for d, a in enumerate(raw[0])]
            values.append(naive(term, [(unit(row), labels[0]), *samples[1:]]))
        assert embeddings_BD.grad is not None
        assert embeddings_BD.grad[0, 2].item() == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-7)


def test_every_loss_of_pairs_is_compared() -> None:
    assert {name for name in LOSSES if issubclass(LOSSES[name], PairLoss)} == {name for name, *_ in CASES.values()}
