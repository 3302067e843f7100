"""Ranking metrics of one query from their definitions, expected over the orders of ties, in float64."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np


def gain(name: str, total: int, images: int) -> tuple[int, Callable[[int, int], float]]:
    """Return the number of ranks that count, and the gain of a hit by rank and number of hits before it."""
    k = total if name in ("map_at_r", "r_precision") else images if name == "map" else int(name.split("_")[-1])
    if name.startswith("recall"):
        return k, lambda rank, before: float(before == 0)
    if name.startswith("precision") or name == "r_precision":
        return k, lambda rank, before: 1 / k
    if name.startswith("ndcg"):
        ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(total, k) + 1))
        return k, lambda rank, before: 1 / math.log2(rank + 1) / ideal
    return k, lambda rank, before: (before + 1) / rank / (total if name == "map" else k)


def over_permutations(similarities: Sequence[float], relevant: Sequence[bool], name: str) -> float:
    """Compute the mean of a metric over all orders of the images, each sorted by similarity."""
    k, of_hit = gain(name, sum(relevant), len(relevant))
    scores = []
    for order in permutations(range(len(relevant))):
        ranked = sorted(order, key=lambda n: -round(similarities[n], 9))[:k]
        hits = [rank for rank, n in enumerate(ranked, 1) if relevant[n]]
        scores.append(sum(of_hit(rank, before) for before, rank in enumerate(hits)))
    return sum(scores) / len(scores)


def expected(similarities: Sequence[float], relevant: Sequence[bool], name: str) -> float:
    """Compute the expected metric rank by rank from the distribution of the number of hits before."""
    k, of_hit = gain(name, sum(relevant), len(relevant))
    order = sorted(range(len(relevant)), key=lambda n: -similarities[n])
    score, rank, before_group = 0.0, 0, 0
    chances = {0: 1.0}
    while rank < min(k, len(order)):
        last = rank + 1
        while last < len(order) and similarities[order[last - 1]] - similarities[order[last]] < 1.5e-12:
            last += 1
        total = sum(relevant[n] for n in order[rank:last])
        for left in range(last - rank, 0, -1):
            rank += 1
            after: dict[int, float] = defaultdict(float)
            for hits, chance in chances.items():
                hit = (total - (hits - before_group)) / left
                if hit and rank <= k:
                    score += chance * hit * of_hit(rank, hits)
                for more, share in ((1, hit), (0, 1 - hit)):
                    if share:
                        after[hits + more] += chance * share
            chances = after
        before_group += total
    return score


def of_queries(
    embeddings: Any,
    labels: Sequence[int],
    name: str,
    galleries: Mapping[int, Sequence[int]] | None = None,
    score: Callable[[Sequence[float], Sequence[bool], str], float] = expected,
) -> dict[int, float]:
    """Compute a metric of each query among the rows of its gallery; without galleries, of each among all others."""
    unit = np.asarray(embeddings, dtype=np.float64)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    rows = range(len(labels))
    if galleries is None:
        galleries = {query: [row for row in rows if row != query] for query in rows}
    return {
        query: score(
            (unit[list(gallery)] @ unit[query]).tolist(), [labels[row] == labels[query] for row in gallery], name
        )
        for query, gallery in galleries.items()
    }
