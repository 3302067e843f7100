"""Every loss against its formula in float64 loops, golden.json and finite differences, on degenerate batches.

Shapes: B batch, D embedding, C classes, K proxies a class.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.loss_loops import D, Matrix, batch_of, beside_the_boundary, informative, others, similarities

from trainables.losses import LOSSES
from trainables.losses.loss import Loss, proxy_cosines
from trainables.losses.mining import most_pairs
from trainables.losses.proxies import centre_regulariser

C = 6


def with_duplicates(embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    embeddings_BD[1], embeddings_BD[4] = embeddings_BD[0], 3 * embeddings_BD[2]
    return embeddings_BD, labels_B


BATCHES = {
    "unequal": batch_of([3, 1, 1, 0, 3, 3, 1, 3, 5, 0, 3], 1),
    "one class": batch_of([2] * 5, 2),
    "singletons": batch_of([4, 1, 0, 5], 3),
    "duplicates": with_duplicates(*batch_of([0, 1, 0, 1, 1, 2, 0], 4)),
    "a pair": batch_of([1, 1], 5),
    "large classes": batch_of([0, 1] * 8, 6),
}


def products(x: torch.Tensor, y: torch.Tensor) -> Matrix:
    return [[sum(a * b for a, b in zip(u, v)) for v in y.tolist()] for u in x.tolist()]


def mean(terms: list[float]) -> float:
    return sum(terms) / len(terms) if terms else 0.0


def contrastive(s: Matrix, y: list[int], margin: float) -> float:
    pairs = [(i, j) for j in range(len(y)) for i in range(j)]
    return mean([-s[i][j] if y[i] == y[j] else max(s[i][j] - margin, 0) for i, j in pairs])


def triplet(s: Matrix, y: list[int], margin: float, mining: str) -> float:
    terms = []
    for a in range(len(y)):
        positives, negatives = others(y, a)
        chosen = [(p, n) for p in positives for n in negatives]
        if mining == "semi_hard":
            below = {p: [n for n in negatives if s[a][n] < s[a][p]] for p in positives}
            chosen = [(p, max(ns, key=lambda n: s[a][n])) for p, ns in below.items() if ns]
        if mining == "hard" and chosen:
            chosen = [(min(positives, key=lambda p: s[a][p]), max(negatives, key=lambda n: s[a][n]))]
        if mining == "top_k":
            chosen = list(zip(*beside_the_boundary(s, y, a), strict=True))
        terms += [max(s[a][n] - s[a][p] + margin, 0) for p, n in chosen]
    return mean(terms)


def lifted_structure(
    s: Matrix, y: list[int], margin: float, mining: str, pos_scale: float = 1, neg_scale: float = 1
) -> float:
    a, b = pos_scale, neg_scale
    terms = []
    for i in range(len(y)):
        positives, negatives = informative(s, y, i, 0.1) if mining == "hard" else others(y, i)
        both = positives and negatives
        pull = math.log(sum(math.exp(a * (margin - s[i][p])) for p in positives)) / a if both else 0
        push = math.log(sum(math.exp(b * s[i][n]) for n in negatives)) / b if both else 0
        terms.append(max(pull + push, 0))
    return mean(terms)


def npair(s: Matrix, y: list[int], x: torch.Tensor, l2: float) -> float:
    terms = []
    for i in range(len(y)):
        positives, negatives = others(y, i)
        terms.append(math.log(1 + sum(math.exp(s[i][k] - s[i][j]) for j in positives for k in negatives)))
    return mean(terms) + l2 * mean([sum(v * v for v in row) for row in x.tolist()])


def margin_loss(s: Matrix, y: list[int], margin: float, beta: float, distance: str, mining: str) -> float:
    assert mining == "all"
    terms = []
    for j in range(len(y)):
        for i in range(j):
            sign = 1 if y[i] == y[j] else -1
            far = math.sqrt(max(2 - 2 * s[i][j], 0)) - beta if distance == "euclidean" else beta - s[i][j]
            terms.append(max(margin + sign * far, 0))
    return mean(terms)


def margin_beside_the_boundary(s: Matrix, y: list[int], margin: float, beta: float, mining: str) -> float:
    assert mining == "top_k"
    terms = []
    for a in range(len(y)):
        for p, n in zip(*beside_the_boundary(s, y, a), strict=True):
            terms.append(max(margin + math.sqrt(max(2 - 2 * s[a][p], 0)) - beta, 0))
            terms.append(max(margin - math.sqrt(max(2 - 2 * s[a][n], 0)) + beta, 0))
    return mean(terms)


def multi_similarity(
    s: Matrix, y: list[int], margin: float, pos_scale: float, neg_scale: float, epsilon: float | None
) -> float:
    a, b = pos_scale, neg_scale
    terms = []
    for i in range(len(y)):
        positives, negatives = others(y, i) if epsilon is None else informative(s, y, i, epsilon)
        pull = math.log(1 + sum(math.exp(-a * (s[i][p] - margin)) for p in positives)) / a
        push = math.log(1 + sum(math.exp(b * (s[i][n] - margin)) for n in negatives)) / b
        terms.append(pull + push)
    return mean(terms)


def smooth_rank(s: list[float], i: int, ahead: list[int], temperature: float) -> float:
    return sum(1 / (1 + math.exp(-(s[j] - s[i]) / temperature)) for j in ahead)


def pnp(s: Matrix, y: list[int], variant: str, temperature: float, bound: float, alpha: float) -> float:
    penalty: dict[str, Callable[[float], float]] = {
        "O": lambda r: r,
        "Iu": lambda r: (1 + r) * math.log(1 + r),
        "Ib": lambda r: (bound * r - math.log(1 + bound * r)) / bound**2,
        "Ds": lambda r: math.log(1 + r),
        "Dq": lambda r: 1 - 1 / (1 + r) ** alpha,
    }
    queries = []
    for q in range(len(y)):
        positives, negatives = others(y, q)
        if positives:
            queries.append(mean([penalty[variant](smooth_rank(s[q], i, negatives, temperature)) for i in positives]))
    return mean(queries)


def smooth_ap(s: Matrix, y: list[int], temperature: float) -> float:
    queries = []
    for q in range(len(y)):
        positives, negatives = others(y, q)
        precisions = []
        for i in positives:
            among = 1 + smooth_rank(s[q], i, [j for j in positives if j != i], temperature)
            precisions.append(among / (among + smooth_rank(s[q], i, negatives, temperature)))
        if positives:
            queries.append(1 - mean(precisions))
    return mean(queries)


def topk_precision(s: Matrix, y: list[int], margin: float, k: int) -> float:
    """Compute the loss as the paper states it: two cases, and sets of misplaced samples."""
    terms = []
    for q in range(len(y)):
        if others(y, q)[0]:
            positives, negatives = beside_the_boundary(s, y, q, k, margin)
            terms.append(sum(s[q][n] + margin for n in negatives) - sum(s[q][p] for p in positives))
    return sum(terms) / len(y)


def angular(s: Matrix, y: list[int], angle: float, mining: str) -> float:
    square = math.tan(math.radians(angle)) ** 2
    terms = []
    for a in range(len(y)):
        positives, negatives = others(y, a) if mining == "all" else beside_the_boundary(s, y, a)
        for p in positives:
            exponents = [4 * square * (s[a][n] + s[p][n]) - 2 * (1 + square) * s[a][p] for n in negatives]
            terms.append(math.log(1 + sum(math.exp(e) for e in exponents)))
    return mean(terms)


Formula = Callable[..., float]
EMBEDDING_LOSSES: list[tuple[str, Formula, dict[str, Any]]] = [
    ("contrastive", contrastive, {"margin": 0.3}),
    *[("triplet", triplet, {"margin": 0.4, "mining": m}) for m in ("all", "semi_hard", "hard", "top_k")],
    *[("lifted_structure", lifted_structure, {"margin": 0.5, "mining": m}) for m in ("all", "hard")],
    *[
        ("lifted_structure", lifted_structure, {"margin": 0.5, "mining": m, "pos_scale": 2.0, "neg_scale": 40.0})
        for m in ("all", "hard")
    ],
    ("npair", npair, {"l2": 0.02}),
    ("margin", margin_loss, {"margin": 0.2, "beta": 1.2, "distance": "euclidean", "mining": "all"}),
    ("margin", margin_loss, {"margin": 0.2, "beta": 0.4, "distance": "similarity", "mining": "all"}),
    ("margin", margin_beside_the_boundary, {"margin": 0.2, "beta": 1.2, "mining": "top_k"}),
    *[
        ("multi_similarity", multi_similarity, {"margin": 0.4, "pos_scale": 3.0, "neg_scale": 20.0, "epsilon": e})
        for e in (None, 0.0, 0.1)
    ],
    *[
        ("pnp", pnp, {"variant": v, "temperature": 0.2, "bound": 3.0, "alpha": 2.0})
        for v in ("O", "Iu", "Ib", "Ds", "Dq")
    ],
    ("smooth_ap", smooth_ap, {"temperature": 0.2}),
    *[("topk_precision", topk_precision, {"margin": 0.1, "k": k}) for k in (1, 2, 3, 5, 20)],
    *[("angular", angular, {"angle": 30.0, "mining": m}) for m in ("all", "top_k")],
]


def check(loss: Loss, batch: str, expected: float) -> None:
    """Compare the value with the formula's and the gradients with finite differences.

    A training knows the number of pairs of a positive for all batches of an epoch, of which others may have more.
    """
    embeddings_BD, labels_B = BATCHES[batch]
    inputs = embeddings_BD.clone().requires_grad_(), *loss.parameters()
    for loss.most_pairs in (None, most_pairs([labels_B]), most_pairs([labels_B]) + 6):
        value = loss(inputs[0], labels_B)
        # beta is stored in float32, and equal embeddings are √eps apart
        assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-7)
    if expected == 0:
        assert not torch.autograd.grad(value, inputs[0])[0].any()
    if batch == "unequal":
        assert torch.autograd.gradcheck(lambda x, *_: loss(x, labels_B), inputs, atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("name", "formula", "params"), EMBEDDING_LOSSES, ids=lambda v: str(v) * (not callable(v)))
def test_losses_of_embeddings(name: str, formula: Formula, params: dict[str, Any], batch: str) -> None:
    embeddings_BD, labels_B = BATCHES[batch]
    loss = LOSSES[name](num_classes=C, embedding_dim=D, **params).double()
    more = {"x": embeddings_BD} if formula is npair else {}
    expected = formula(similarities(embeddings_BD, embeddings_BD), labels_B.tolist(), **params, **more)
    check(loss, batch, expected)


def soft(cosines: list[float], gamma: float) -> float:
    weights = [math.exp(s / gamma) for s in cosines]
    return sum(w * s for w, s in zip(weights, cosines)) / sum(weights)


def regulariser(proxies_CKD: torch.Tensor) -> float:
    count = proxies_CKD.shape[1]
    total = 0.0
    for proxies_KD in proxies_CKD:
        s = similarities(proxies_KD, proxies_KD)
        total += sum(math.sqrt(2 - 2 * s[i][j]) for i in range(count) for j in range(i))
    return total / (len(proxies_CKD) * count * (count - 1)) if count > 1 else 0.0


def proxy_anchor(s: Matrix, y: list[int], margin: float, scale: float) -> float:
    batch = range(len(y))
    pull = [math.log(1 + sum(math.exp(-scale * (s[i][c] - margin)) for i in batch if y[i] == c)) for c in set(y)]
    push = [math.log(1 + sum(math.exp(scale * (s[i][c] + margin)) for i in batch if y[i] != c)) for c in range(C)]
    return mean(pull) + mean(push)


def mpa_dw(s: Matrix, y: list[int], margin: float, scale: float) -> float:
    return mean(
        [
            math.log(1 + math.exp(-scale * (row[c] - margin)))
            + math.log(1 + sum(math.exp(scale * (row[o] + margin)) for o in range(C) if o != c))
            for row, c in zip(s, y)
        ]
    )


def mpa_ap(s: Matrix, y: list[int], margin: float, scale: float) -> float:
    return mean(
        [
            math.log(1 + sum(math.exp(scale * (margin - row[o] if o == c else row[o] + margin)) for o in range(C)))
            for row, c in zip(s, y)
        ]
    )


def cross_entropies(s: Matrix, y: list[int], margin: float, scale: float) -> float:
    terms = []
    for row, c in zip(s, y):
        own = math.exp(scale * (row[c] - margin))
        terms.append(-math.log(own / (own + sum(math.exp(scale * row[o]) for o in range(C) if o != c))))
    return mean(terms)


def arcface(s: Matrix, y: list[int], degrees: float, scale: float) -> float:
    margin = math.radians(degrees)
    shifted = []
    for row, c in zip(s, y):
        angle = math.acos(row[c])
        own = math.cos(angle + margin) if angle + margin < math.pi else row[c] - margin * math.sin(margin)
        shifted.append([own if o == c else row[o] for o in range(C)])
    return cross_entropies(shifted, y, 0.0, scale)


def proxy_nca(s: Matrix, y: list[int], scale: float) -> float:
    return mean(
        [-scale * row[c] + math.log(sum(math.exp(scale * row[o]) for o in range(C) if o != c)) for row, c in zip(s, y)]
    )


def proxy_push(x: torch.Tensor, w: torch.Tensor, y: list[int], margin: float, scale: float, similarity: str) -> float:
    s, between = similarities(x, w), similarities(w, w)
    if similarity == "data":
        between = [[sum(row[a] * row[b] for row in s) for b in range(C)] for a in range(C)]
    push = [math.log(1 + sum(math.exp(scale * (between[c][o] + margin)) for o in range(C) if o != c)) for c in range(C)]
    pull = [
        math.log(1 + sum(math.exp(-scale * (row[c] - margin)) for row, own in zip(s, y) if own == c)) for c in set(y)
    ]
    return mean(pull) + mean(push)


ONE_PROXY: list[tuple[str, dict[str, Any], Callable[[torch.Tensor, torch.Tensor, list[int]], float]]] = [
    ("softmax", {"scale": 7.0}, lambda x, w, y: cross_entropies(similarities(x, w), y, 0.0, 7.0)),
    ("softmax", {"similarity": "dot"}, lambda x, w, y: cross_entropies(products(x, w), y, 0.0, 1.0)),
    ("proxy_nca", {}, lambda x, w, y: proxy_nca(similarities(x, w), y, 1.0)),
    ("proxy_nca", {"scale": 18.0}, lambda x, w, y: proxy_nca(similarities(x, w), y, 18.0)),
    *[
        ("arcface", {"margin": m, "scale": 9.0}, lambda x, w, y, m=m: arcface(similarities(x, w), y, m, 9.0))
        for m in (28.6, 120.0)
    ],
    ("proxy_anchor", {"scale": 9.0}, lambda x, w, y: proxy_anchor(similarities(x, w), y, 0.1, 9.0)),
    *[
        ("proxy_push", {"similarity": v, "scale": 3.0}, lambda x, w, y, v=v: proxy_push(x, w, y, 0.1, 3.0, v))
        for v in ("proxy", "data")
    ],
]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("name", "params", "formula"), ONE_PROXY, ids=lambda v: str(v) * (not callable(v)))
def test_losses_of_one_proxy(name: str, params: dict[str, Any], formula: Callable[..., float], batch: str) -> None:
    embeddings_BD, labels_B = BATCHES[batch]
    loss = LOSSES[name](num_classes=C, embedding_dim=D, **params).double()
    check(loss, batch, formula(embeddings_BD, loss.proxies[:, 0].detach(), labels_B.tolist()))


SEVERAL_PROXIES = {"mpa": proxy_anchor, "mpa_dw": mpa_dw, "mpa_ap": mpa_ap, "soft_triple": cross_entropies}
OF_CLASS: dict[str, Callable[[list[float]], float]] = {"soft": lambda s: soft(s, 0.3), "max": max, "mean": mean}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("name", "similarity"),
    [*((name, of_class) for name in ("mpa", "mpa_dw", "mpa_ap") for of_class in OF_CLASS), ("soft_triple", "soft")],
)
@pytest.mark.parametrize("count", [1, 3])
def test_losses_of_several_proxies(name: str, similarity: str, count: int, batch: str) -> None:
    embeddings_BD, labels_B = BATCHES[batch]
    params = {"gamma": 0.3} if similarity == "soft" else {"similarity": similarity}
    loss = LOSSES[name](
        num_classes=C, embedding_dim=D, proxies_per_class=count, tau=0.7, margin=0.2, scale=5.0, **params
    ).double()
    proxies_CKD = loss.proxies.detach()
    cosines = similarities(embeddings_BD, proxies_CKD.flatten(0, 1))
    s = [[OF_CLASS[similarity](row[c * count : (c + 1) * count]) for c in range(C)] for row in cosines]
    check(loss, batch, SEVERAL_PROXIES[name](s, labels_B.tolist(), 0.2, 5.0) + 0.7 * regulariser(proxies_CKD))


# golden.json, computed independently.


GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text(encoding="utf-8"))
EMBEDDINGS_BD = torch.tensor(GOLDEN["inputs"]["A"]["x"], dtype=torch.float64)
LABELS_B = torch.tensor(GOLDEN["inputs"]["A"]["y"])


def proxies_of(name: str) -> torch.Tensor:
    proxies = torch.tensor(GOLDEN["inputs"][name], dtype=torch.float64)
    return proxies if proxies.ndim == 3 else proxies[:, None]


def built(name: str, proxies: str | None = None, **params: Any) -> Loss:
    """Build a loss in float64 with the proxies of golden.json, some of classes that are not in the batch."""
    dimensions = EMBEDDINGS_BD.shape[1]
    if proxies is None:
        return LOSSES[name](num_classes=6, embedding_dim=dimensions, **params).double()
    proxies_CKD = proxies_of(proxies)
    if proxies_CKD.shape[1] > 1:
        params["proxies_per_class"] = proxies_CKD.shape[1]
    loss = LOSSES[name](num_classes=len(proxies_CKD), embedding_dim=dimensions, **params).double()
    loss.proxies.data = proxies_CKD
    return loss


def close(actual: torch.Tensor, expected: Any, relative: float = 1e-6) -> None:
    """Check equality up to a relative error; for a gradient, relative to its largest entry."""
    expected = torch.as_tensor(expected, dtype=torch.float64).reshape(actual.shape)
    assert (actual - expected).abs().max() <= relative * expected.abs().max().clamp(min=1e-12)


@pytest.mark.parametrize("case", GOLDEN["losses"], ids=lambda case: f"{case['loss']}-{case['case']}")
def test_value_and_gradients(case: dict[str, Any]) -> None:
    loss = built(case["loss"], case["proxies"], **case["hyperparameters"])
    # only directions matter, so an embedding 3 times as long has a gradient 3 times as small
    embeddings_BD = (3 * EMBEDDINGS_BD).requires_grad_()
    value = loss(embeddings_BD, LABELS_B)
    value.backward()
    close(value.detach(), case["value"])
    close(embeddings_BD.grad * 3, case["grad_x_tangent"])
    if case["proxies"]:
        close(loss.proxies.grad, case["grad_w_tangent"])


def test_equal_centres_have_a_regulariser() -> None:
    proxies_CKD = torch.randn(5, 1, 512).repeat(1, 4, 1).requires_grad_()
    value = centre_regulariser(proxy_cosines(torch.zeros(1, 512), proxies_CKD)[1], 1.0)
    value.backward()
    assert value.item() == pytest.approx(math.sqrt(1e-5) / 2, rel=1e-4)
    assert proxies_CKD.grad.isfinite().all()
