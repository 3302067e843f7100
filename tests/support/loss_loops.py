"""Batches and plain float64 loops over their pairs, for tests of the losses.

Shapes: B batch, D embedding.
"""

import math

import torch

D = 5
Matrix = list[list[float]]


def batch_of(labels: list[int], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(labels), D, generator=generator, dtype=torch.float64) * 2, torch.tensor(labels)


def similarities(x: torch.Tensor, y: torch.Tensor) -> Matrix:
    """Compute cosines, rounded to twelve digits so that those of duplicates are equal."""
    rows, columns = x.tolist(), y.tolist()
    return [
        [round(sum(a * b for a, b in zip(u, v)) / (math.hypot(*u) * math.hypot(*v)), 12) for v in columns] for u in rows
    ]


def others(labels: list[int], i: int) -> tuple[list[int], list[int]]:
    rest = [j for j in range(len(labels)) if j != i]
    return [j for j in rest if labels[j] == labels[i]], [j for j in rest if labels[j] != labels[i]]


def informative(s: Matrix, y: list[int], i: int, epsilon: float) -> tuple[list[int], list[int]]:
    """Return the positives and negatives of i within epsilon of the other side's hardest."""
    positives, negatives = others(y, i)
    hardest_negative = max((s[i][n] for n in negatives), default=-math.inf)
    hardest_positive = min((s[i][p] for p in positives), default=math.inf)
    return (
        [p for p in positives if s[i][p] < hardest_negative + epsilon],
        [n for n in negatives if s[i][n] > hardest_positive - epsilon],
    )


def beside_the_boundary(s: Matrix, y: list[int], i: int, k: int = 5, margin: float = 0) -> tuple[list[int], list[int]]:
    """Return the misplaced positives and negatives of i, in the order of the ranking (Lu et al., eq. 6-7, 9-10)."""
    positives, negatives = others(y, i)
    score = {**{p: s[i][p] for p in positives}, **{n: s[i][n] + margin for n in negatives}}
    ranked = sorted(score, key=lambda j: (-score[j], j))
    first, beyond = ranked[:k], ranked[k:]
    inside = [j for j in first if j in negatives]
    if len(positives) < k:
        return [j for j in beyond if j in positives], inside[k - len(positives) :]
    return [j for j in beyond if j in positives][: len(inside)], inside
