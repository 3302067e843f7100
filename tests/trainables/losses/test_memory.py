"""The memory of earlier batches, against plain loops in float64.

Shapes: B batch, D embedding.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from trainables.losses import LOSSES, loss_row
from trainables.losses.memory import Memory, PairLoss

D, SIZE = 6, 17
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


def built(name: str, size: int | None = SIZE, **params: Any) -> PairLoss:
    loss = LOSSES[name](num_classes=6, embedding_dim=D, **params)
    assert isinstance(loss, PairLoss)
    if size is not None:
        loss.memory = Memory(size, D)
        loss.memory.active = True
    return loss.double()


def naive(term: Term, anchors: Sequence[Sample], samples: Sequence[Sample]) -> float:
    """Return the mean of the terms; the samples begin with the anchors."""
    terms: list[float] = []
    for i, x in enumerate(anchors):
        others = [sample for j, sample in enumerate(samples) if j != i]
        same, different = ([s for s in others if (s[1] == x[1]) is wanted] for wanted in (True, False))
        terms += term(x, same, different)
    return sum(terms) / max(len(terms), 1)


@pytest.mark.parametrize("case", CASES)
def test_a_loss_with_a_memory_is_that_of_the_batch_and_of_the_newest_embeddings(case: str) -> None:
    """The queue is a list of all samples, newest batch first, cut to its size; only the anchors have a gradient."""
    name, params, term = CASES[case]
    loss = built(name, **params)
    samples: list[Sample] = []
    for step in range(len(BATCHES)):
        embeddings_BD, labels_B = batch(step)
        embeddings_BD.requires_grad_()
        value = loss(embeddings_BD, labels_B)
        value.backward()

        raw, labels = embeddings_BD.tolist(), labels_B.tolist()
        anchors = [(unit(row), label) for row, label in zip(raw, labels, strict=True)]
        samples = [*anchors, *samples][:SIZE]
        assert value.item() == pytest.approx(naive(term, anchors, anchors) + naive(term, anchors, samples), rel=1e-9)

        values = []
        for step_of_difference in (1e-6, -1e-6):
            row = [a + step_of_difference * (d == 2) for d, a in enumerate(raw[0])]
            others = [(unit(row), labels[0]), *anchors[1:]]
            values.append(naive(term, others, others) + naive(term, others, samples))
        assert embeddings_BD.grad is not None
        assert embeddings_BD.grad[0, 2].item() == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-7)
    assert len(samples) == SIZE


PAIR_LOSSES = [name for name in LOSSES if loss_row(name).of_pairs]


def test_the_rows_name_the_losses_of_pairs() -> None:
    assert [name for name in LOSSES if issubclass(LOSSES[name], PairLoss)] == PAIR_LOSSES
    assert {name for name, *_ in CASES.values()} == set(PAIR_LOSSES)


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_a_memory_that_is_not_active_changes_nothing(name: str) -> None:
    loss, without = built(name), built(name, None)
    assert loss.memory is not None
    loss.memory.active = False
    for step in range(2):
        values = []
        for module in (loss, without):
            torch.manual_seed(step)
            values.append(module(*batch(step)).item())
        assert values[0] == values[1]
    assert not loss.memory.embeddings_MD.any()
    assert loss.state_dict().keys() == without.state_dict().keys()


@pytest.mark.parametrize("name", PAIR_LOSSES)
@pytest.mark.parametrize("labels", [[4] * 5, [0, 1, 2, 3, 4]], ids=["one class", "singletons"])
def test_any_batches_give_finite_losses_and_gradients(name: str, labels: list[int]) -> None:
    loss = built(name, 12)
    for step in range(4):
        torch.manual_seed(step)
        embeddings_BD = torch.randn(len(labels), D, dtype=torch.float64, requires_grad=True)
        value = loss(embeddings_BD, torch.tensor(labels))
        value.backward()
        assert torch.isfinite(value)
        assert embeddings_BD.grad is not None
        assert torch.isfinite(embeddings_BD.grad).all()


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_a_count_is_of_the_batch_and_of_the_memory(name: str) -> None:
    """With the memory as large as a batch it is the batch: each ordered pair where the batch has unordered ones."""
    loss, without = built(name, len(BATCHES[0])), built(name, None)
    for module in (loss, without):
        torch.manual_seed(0)
        module(*batch(0))
    if without.used is None:
        assert loss.used is None
        return
    assert loss.used is not None
    assert loss.used.unit == without.used.unit
    factor = 3 if name == "contrastive" else 2
    assert int(loss.used.count) == factor * int(without.used.count)
