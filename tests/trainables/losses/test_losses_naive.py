"""Every loss against its formula in plain float64 loops, on degenerate batches.

Shapes: B batch, D embedding, C classes, K proxies a class.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainables.losses import LOSSES

C, D = 6, 5
Matrix = list[list[float]]


def batch_of(labels: list[int], seed: int, duplicates: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    embeddings_BD = torch.randn(len(labels), D, generator=generator, dtype=torch.float64) * 2
    if duplicates:
        embeddings_BD[1], embeddings_BD[4] = embeddings_BD[0], 3 * embeddings_BD[2]
    return embeddings_BD, torch.tensor(labels)


BATCHES = {
    "unequal": batch_of([3, 1, 1, 0, 3, 3, 1, 3, 5, 0, 3], 1),
    "one class": batch_of([2] * 5, 2),
    "singletons": batch_of([4, 1, 0, 5], 3),
    "duplicates": batch_of([0, 1, 0, 1, 1, 2, 0], 4, duplicates=True),
    "a pair": batch_of([1, 1], 5),
    "large classes": batch_of([0, 1] * 8, 6),
}


def similarities(x: torch.Tensor, y: torch.Tensor) -> Matrix:
    """Compute cosines, rounded to twelve digits so that those of duplicates are equal."""
    rows, columns = x.tolist(), y.tolist()
    return [
        [round(sum(a * b for a, b in zip(u, v)) / (math.hypot(*u) * math.hypot(*v)), 12) for v in columns] for u in rows
    ]


def products(x: torch.Tensor, y: torch.Tensor) -> Matrix:
    """Compute the dot product of two vectors, not normalised."""
    return [[sum(a * b for a, b in zip(u, v)) for v in y.tolist()] for u in x.tolist()]


def mean(terms: list[float]) -> float:
    return sum(terms) / len(terms) if terms else 0.0


def others(labels: list[int], i: int) -> tuple[list[int], list[int]]:
    """Return the positives and the negatives of i."""
    others = [j for j in range(len(labels)) if j != i]
    return [j for j in others if labels[j] == labels[i]], [j for j in others if labels[j] != labels[i]]


def contrastive(s: Matrix, y: list[int], margin: float) -> float:
    pairs = [(i, j) for j in range(len(y)) for i in range(j)]
    return mean([-s[i][j] if y[i] == y[j] else max(s[i][j] - margin, 0) for i, j in pairs])


def beside_the_boundary(s: Matrix, y: list[int], i: int, k: int = 5) -> tuple[list[int], list[int]]:
    """Return the misplaced positives and negatives of i, in the order of the ranking (Lu et al., eq. 6-7, 9-10)."""
    positives, negatives = others(y, i)
    ranked = sorted([*positives, *negatives], key=lambda j: (-s[i][j], j))
    first, beyond = ranked[:k], ranked[k:]
    inside = [j for j in first if j in negatives]
    if len(positives) < k:
        return [j for j in beyond if j in positives], inside[k - len(positives) :]
    return [j for j in beyond if j in positives][: len(inside)], inside


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


def informative(s: Matrix, i: int, pairs: tuple[list[int], list[int]], epsilon: float) -> tuple[list[int], list[int]]:
    """Return the positives and negatives within epsilon of the other side's hardest."""
    positives, negatives = pairs
    hardest_negative = max((s[i][n] for n in negatives), default=-math.inf)
    hardest_positive = min((s[i][p] for p in positives), default=math.inf)
    return (
        [p for p in positives if s[i][p] < hardest_negative + epsilon],
        [n for n in negatives if s[i][n] > hardest_positive - epsilon],
    )


def lifted_structure(s: Matrix, y: list[int], margin: float, mining: str, a: float = 1, b: float = 1) -> float:
    terms = []
    for i in range(len(y)):
        positives, negatives = others(y, i)
        if mining == "hard":
            positives, negatives = informative(s, i, (positives, negatives), 0.1)
        both = positives and negatives
        pull = math.log(sum(math.exp(a * (margin - s[i][p])) for p in positives)) / a if both else 0
        push = math.log(sum(math.exp(b * s[i][n]) for n in negatives)) / b if both else 0
        terms.append(max(pull + push, 0))
    return mean(terms)


def lifted_structure_of_the_codes(s: Matrix, y: list[int], a: float, b: float) -> float:
    """Compute half of the value in the codes, which have no margin and no [.]_+, plus the margin of 2."""
    terms = []
    for i in range(len(y)):
        positives, negatives = informative(s, i, others(y, i), 0.1)
        if positives and negatives:
            pull = 2 / a * math.log(sum(math.exp(-a * s[i][p]) for p in positives))
            push = 2 / b * math.log(sum(math.exp(b * s[i][n]) for n in negatives))
            terms.append(2 + (pull + push) / 2)
    return sum(terms) / len(y)


def npair(s: Matrix, y: list[int], l2: float, x: torch.Tensor) -> float:
    terms = []
    for i in range(len(y)):
        positives, negatives = others(y, i)
        terms.append(math.log(1 + sum(math.exp(s[i][k] - s[i][j]) for j in positives for k in negatives)))
    return mean(terms) + l2 * mean([sum(v * v for v in row) for row in x.tolist()])


def margin_loss(s: Matrix, y: list[int], margin: float, beta: float, distance: str) -> float:
    terms = []
    for j in range(len(y)):
        for i in range(j):
            sign = 1 if y[i] == y[j] else -1
            far = math.sqrt(max(2 - 2 * s[i][j], 0)) - beta if distance == "euclidean" else beta - s[i][j]
            terms.append(max(margin + sign * far, 0))
    return mean(terms)


def margin_beside_the_boundary(s: Matrix, y: list[int], margin: float, beta: float) -> float:
    terms = []
    for a in range(len(y)):
        for p, n in zip(*beside_the_boundary(s, y, a), strict=True):
            terms.append(max(margin + math.sqrt(max(2 - 2 * s[a][p], 0)) - beta, 0))
            terms.append(max(margin - math.sqrt(max(2 - 2 * s[a][n], 0)) + beta, 0))
    return mean(terms)


def multi_similarity(s: Matrix, y: list[int], margin: float, a: float, b: float, epsilon: float | None) -> float:
    terms = []
    for i in range(len(y)):
        positives, negatives = others(y, i)
        if epsilon is not None:
            positives, negatives = informative(s, i, (positives, negatives), epsilon)
        pull = math.log(1 + sum(math.exp(-a * (s[i][p] - margin)) for p in positives)) / a
        push = math.log(1 + sum(math.exp(b * (s[i][n] - margin)) for n in negatives)) / b
        terms.append(pull + push)
    return mean(terms)


def smooth_rank(s: list[float], i: int, ahead: list[int], temperature: float) -> float:
    return sum(1 / (1 + math.exp(-(s[j] - s[i]) / temperature)) for j in ahead)


def pnp(s: Matrix, y: list[int], variant: str, temperature: float, b: float, alpha: float) -> float:
    penalty: dict[str, Callable[[float], float]] = {
        "O": lambda r: r,
        "Iu": lambda r: (1 + r) * math.log(1 + r),
        "Ib": lambda r: (b * r - math.log(1 + b * r)) / b**2,
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
        positives, negatives = others(y, q)
        score = {**{p: s[q][p] for p in positives}, **{n: s[q][n] + margin for n in negatives}}
        ranked = sorted(score, key=lambda i: -score[i])
        first, beyond = ranked[:k], ranked[k:]
        if not positives:
            continue
        if len(positives) < k:
            misplaced_p = [i for i in beyond if i in positives]
            misplaced_n = [i for i in first if i in negatives][k - len(positives) :]
        else:
            misplaced_n = [i for i in first if i in negatives]
            misplaced_p = [i for i in beyond if i in positives][: len(misplaced_n)]
        terms.append(sum(score[i] for i in misplaced_n) - sum(score[i] for i in misplaced_p))
    return sum(terms) / len(y)


def angular(x: torch.Tensor, y: list[int], angle: float, mining: str) -> float:
    square = math.tan(math.radians(angle)) ** 2
    s = similarities(x, x)
    terms = []
    for a in range(len(y)):
        positives, negatives = others(y, a) if mining == "all" else beside_the_boundary(s, y, a)
        for p in positives:
            exponents = [4 * square * (s[a][n] + s[p][n]) - 2 * (1 + square) * s[a][p] for n in negatives]
            terms.append(math.log(1 + sum(math.exp(e) for e in exponents)))
    return mean(terms)


EMBEDDING_LOSSES: list[tuple[str, dict[str, Any], Callable[[torch.Tensor, Matrix, list[int]], float]]] = [
    ("contrastive", {"margin": 0.3}, lambda x, s, y: contrastive(s, y, 0.3)),
    *[
        ("triplet", {"margin": 0.4, "mining": m}, lambda x, s, y, m=m: triplet(s, y, 0.4, m))
        for m in ("all", "semi_hard", "hard", "top_k")
    ],
    *[
        ("lifted_structure", {"margin": 0.5, "mining": m}, lambda x, s, y, m=m: lifted_structure(s, y, 0.5, m))
        for m in ("all", "hard")
    ],
    *[
        (
            "lifted_structure",
            {"margin": 0.5, "mining": m, "pos_scale": 2.0, "neg_scale": 40.0},
            lambda x, s, y, m=m: lifted_structure(s, y, 0.5, m, 2.0, 40.0),
        )
        for m in ("all", "hard")
    ],
    (
        "lifted_structure",
        {"margin": 2.0, "mining": "hard", "pos_scale": 10.0, "neg_scale": 10.0},
        lambda x, s, y: lifted_structure_of_the_codes(s, y, 10.0, 10.0),
    ),
    ("npair", {"l2": 0.02}, lambda x, s, y: npair(s, y, 0.02, x)),
    *[
        (
            "margin",
            {"margin": 0.2, "beta": b, "distance": d, "mining": "all"},
            lambda x, s, y, b=b, d=d: margin_loss(s, y, 0.2, b, d),
        )
        for d, b in (("euclidean", 1.2), ("similarity", 0.4))
    ],
    *[
        (
            "multi_similarity",
            {"margin": 0.4, "pos_scale": 3.0, "neg_scale": 20.0, "epsilon": e},
            lambda x, s, y, e=e: multi_similarity(s, y, 0.4, 3.0, 20.0, e),
        )
        for e in (None, 0.0, 0.1)
    ],
    *[
        (
            "pnp",
            {"variant": v, "temperature": 0.2, "bound": 3.0, "alpha": 2.0},
            lambda x, s, y, v=v: pnp(s, y, v, 0.2, 3.0, 2.0),
        )
        for v in ("O", "Iu", "Ib", "Ds", "Dq")
    ],
    ("smooth_ap", {"temperature": 0.2}, lambda x, s, y: smooth_ap(s, y, 0.2)),
    *[
        ("topk_precision", {"margin": 0.1, "k": k}, lambda x, s, y, k=k: topk_precision(s, y, 0.1, k))
        for k in (1, 2, 3, 5, 20)
    ],
    *[("angular", {"angle": 30.0, "mining": m}, lambda x, s, y, m=m: angular(x, y, 30.0, m)) for m in ("all", "top_k")],
    (
        "margin",
        {"margin": 0.2, "beta": 1.2, "mining": "top_k"},
        lambda x, s, y: margin_beside_the_boundary(s, y, 0.2, 1.2),
    ),
]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("name", "params", "formula"), EMBEDDING_LOSSES, ids=lambda v: str(v) if not callable(v) else ""
)
def test_losses_of_embeddings(name: str, params: dict[str, Any], formula: Callable[..., float], batch: str) -> None:
    embeddings_BD, labels_B = BATCHES[batch]
    loss = LOSSES[name](num_classes=C, embedding_dim=D, **params).double()
    expected = formula(embeddings_BD, similarities(embeddings_BD, embeddings_BD), labels_B.tolist())
    # beta is stored in float32, and equal embeddings are √eps apart
    assert loss(embeddings_BD, labels_B).item() == pytest.approx(expected, rel=1e-9, abs=1e-7)


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
    expected = formula(embeddings_BD, loss.proxies[:, 0].detach(), labels_B.tolist())
    assert loss(embeddings_BD, labels_B).item() == pytest.approx(expected, rel=1e-9)


SEVERAL_PROXIES = {"mpa": proxy_anchor, "mpa_dw": mpa_dw, "mpa_ap": mpa_ap, "soft_triple": cross_entropies}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", SEVERAL_PROXIES)
@pytest.mark.parametrize("count", [1, 3])
def test_losses_of_several_proxies(name: str, count: int, batch: str) -> None:
    embeddings_BD, labels_B = BATCHES[batch]
    loss = LOSSES[name](
        num_classes=C, embedding_dim=D, proxies_per_class=count, gamma=0.3, tau=0.7, margin=0.2, scale=5.0
    ).double()
    proxies_CKD = loss.proxies.detach()
    cosines = similarities(embeddings_BD, proxies_CKD.flatten(0, 1))
    s = [[soft(row[c * count : (c + 1) * count], 0.3) for c in range(C)] for row in cosines]
    expected = SEVERAL_PROXIES[name](s, labels_B.tolist(), 0.2, 5.0) + 0.7 * regulariser(proxies_CKD)
    assert loss(embeddings_BD, labels_B).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["mpa", "mpa_dw", "mpa_ap"])
@pytest.mark.parametrize(("similarity", "of_class"), [("max", max), ("mean", mean)], ids=["max", "mean"])
@pytest.mark.parametrize("count", [1, 3])
def test_max_and_mean_class_similarities(
    name: str, similarity: str, of_class: Callable[[list[float]], float], count: int, batch: str
) -> None:
    embeddings_BD, labels_B = BATCHES[batch]
    loss = LOSSES[name](
        num_classes=C, embedding_dim=D, proxies_per_class=count, similarity=similarity, margin=0.2, scale=5.0, tau=0.7
    ).double()
    proxies_CKD = loss.proxies.detach()
    cosines = similarities(embeddings_BD, proxies_CKD.flatten(0, 1))
    s = [[of_class(row[c * count : (c + 1) * count]) for c in range(C)] for row in cosines]
    expected = SEVERAL_PROXIES[name](s, labels_B.tolist(), 0.2, 5.0) + 0.7 * regulariser(proxies_CKD)
    assert loss(embeddings_BD, labels_B).item() == pytest.approx(expected, rel=1e-9)
