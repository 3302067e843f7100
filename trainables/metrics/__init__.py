"""Metrics of embeddings by name, with formulas and rules of names, computed by :mod:`trainables.metrics.evaluation`."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from trainables.common.errors import InvalidInput
from trainables.common.part_tables import is_own, load_part

KS = (1, 2, 4, 8)
"""Default values of k."""

AT_K: dict[str, str] = {
    "recall_at_k": "1 if any of the k nearest is of the query's class",
    "precision_at_k": "hits among the k nearest / k",
    "map_at_k": "Σ_{i≤k} P@i·rel_i / k",
    "ndcg_at_k": "Σ_{i≤k} (2^rel_i − 1)/log2(i+1) over that of min(R, k) hits in front (Saeki et al., eq. 19-20)",
}
"""Metrics of the first k ranks; in a metric's name k is a number."""

AT_R: dict[str, str] = {"map_at_r": "Σ_{i≤R} P@i·rel_i / R", "r_precision": "hits among the R nearest / R"}
"""Metrics of the first R ranks of each query."""

WHOLE: dict[str, str] = {"map": "Σ_i P@i·rel_i / R over the whole ranking"}
"""Metrics of the whole ranking, which sort all images for each query."""

CLUSTERING: dict[str, str] = {
    "nmi": "2 I(classes; clusters) / (H(classes) + H(clusters)) of k-means with as many clusters as classes",
    "f1": "2PR/(P+R) of pairs of images: P of those in one cluster are in one class, R of those in one class",
}

SUPERCLASSES: dict[str, str] = {
    "nmi_super": "nmi of k-means with as many clusters as superclasses, against the superclasses",
    "f1_super": "f1 of the same clusters, against the superclasses",
}
"""Metrics of a data set with superclasses."""

DISTANCES: dict[str, str] = {
    "dists_intra": "mean cosine distance of two images of a class, averaged over classes of two or more",
    "dists_inter": "mean cosine distance of the normalised means of two classes",
    "dists_ratio": "dists_intra / dists_inter",
}

METRICS: dict[str, str] = {**AT_K, **AT_R, **WHOLE, **CLUSTERING, **SUPERCLASSES, **DISTANCES}
"""Formula of every metric by name. In ``_at_k``, k is any integer of at least 1: ``recall_at_1``."""


def split_at_k(name: str) -> tuple[str, int] | None:
    """Split ``recall_at_10`` into its row ``recall_at_k`` and 10; None for a metric not in ``AT_K``."""
    parsed = re.fullmatch(r"([a-z]+)_at_([1-9]\d*)", name)
    row = f"{parsed[1]}_at_k" if parsed else ""
    return (row, int(parsed[2])) if parsed and row in AT_K else None


def split_subset(name: str) -> tuple[str, str | None]:
    """Split ``recall_at_1-small`` into the metric and the data set's test subset ``small``, None without a subset."""
    metric, _, subset = name.partition("-")
    return (metric, subset) if subset and not is_own(name) else (name, None)


def is_retrieval(name: str) -> bool:
    """Return True for a metric of rankings, which has a score for each query."""
    return name in AT_R or name in WHOLE or split_at_k(name) is not None


def is_bounded(name: str) -> bool:
    """Return True if every value of the metric is between 0 and 1; False for a user-defined metric."""
    metric, _ = split_subset(name)
    return is_retrieval(metric) or metric in CLUSTERING or metric in SUPERCLASSES


def unit(name: str) -> int:
    """Return the factor by which a metric is shown: 100, per cent, if its values are between 0 and 1, otherwise 1."""
    return 100 if is_bounded(name) else 1


def score_text(name: str, value: float | None, sign: str = "") -> str:
    """Return a value of a metric in its :func:`unit`, "–" for None; ``sign="+"`` for a difference.

    >>> score_text("map_at_r", 0.07404), score_text("dists_intra", 0.41239)
    ('7.40', '0.4124')
    """
    if value is None:
        return "–"
    return f"{100 * value:{sign}.2f}" if is_bounded(name) else f"{value:{sign}.4g}"


def by_chance(name: str, sizes: Sequence[int]) -> float | None:
    """Return the expected value of a metric if every query's ranking of all other images were random.

    ``sizes`` are the numbers of images by class; each image is a query. None for a metric without such a formula.

    A rank is relevant with probability p = R / M, for R relevant ones of M images, and each rank before a relevant one
    with q = (R − 1) / (M − 1), so the mean of P@i · rel_i is p (1 + (i − 1) q) / i, whose sum has harmonic numbers.
    """
    row, k = split_at_k(name) or (name, 0)
    others = sum(sizes) - 1

    def precisions(ranks: int, relevant: int) -> float:
        p, q, first = relevant / others, (relevant - 1) / max(1, others - 1), min(ranks, others)
        return p * ((1 - q) * _harmonic(first) + q * first)

    formulas: dict[str, Callable[[int], float]] = {
        "recall_at_k": lambda r: 1 - math.prod(max(0, others - r - i) / (others - i) for i in range(min(k, others))),
        "precision_at_k": lambda r: r / others * min(k, others) / k,
        "map_at_k": lambda r: precisions(k, r) / k,
        "map_at_r": lambda r: precisions(r, r) / r,
        "r_precision": lambda r: r / others,
        "map": lambda r: precisions(others, r) / r,
    }
    if row not in formulas or others < 1:
        return None
    hits = (size * count * formulas[row](size - 1) for size, count in Counter(sizes).items() if size > 1)
    return sum(hits) / sum(sizes)


@cache
def _harmonic(number: int) -> float:
    return math.fsum(1 / i for i in range(1, number + 1))


def retrieval_names(ks: Sequence[int]) -> tuple[str, ...]:
    """Return the names of all retrieval metrics, those of the first k ranks for each of ``ks``."""
    return (*(name.removesuffix("k") + str(k) for name in AT_K for k in ks), *AT_R, *WHOLE)


def all_metrics(ks: Sequence[int] = KS) -> tuple[str, ...]:
    """Return the names of all metrics without superclasses, those of k ranks for each of ``ks``."""
    return (*retrieval_names(ks), *CLUSTERING, *DISTANCES)


def unknown_metrics(names: Sequence[str]) -> list[str]:
    """Return the ``names`` that are neither a metric's nor an import path."""
    others = {**CLUSTERING, **SUPERCLASSES, **DISTANCES}
    return [name for name in names if name not in others and not is_retrieval(name) and not is_own(name)]


def superclass_metrics(names: Sequence[str]) -> list[str]:
    """Return the ``names`` of metrics that need superclasses."""
    return [name for name in names if split_subset(name)[0] in SUPERCLASSES]


def largest_k(names: Sequence[str]) -> int:
    """Return the largest k in the ``names`` of metrics, 0 without any."""
    return max((found[1] for name in names if (found := split_at_k(split_subset(name)[0]))), default=0)


def name_conflicts(names: Sequence[str]) -> list[str]:
    """Return an error for each user-defined metric whose function has the name of another metric."""
    seen: dict[str, str] = {}
    sentences = []
    for path in dict.fromkeys(name for name in names if is_own(name)):
        name = metric_name(path)
        other = name if name in METRICS or is_retrieval(name) else seen.setdefault(name, path)
        if other != path:
            sentences.append(f"The metric {path!r} has the name of {other!r}: rename the function.")
    return sentences


def metric_name(name: str) -> str:
    """Return the label of a metric's value: its name, or for an import path the function's name.

    >>> metric_name("mylab.metrics:hubness")
    'hubness'
    """
    return re.split(r"[:.]", name)[-1]


def own_metric(path: str) -> Callable[..., Any]:
    """Load a user-defined metric: a function of embeddings [N, D] and labels [N] to a number, better when larger."""
    metric = load_part(path, kind="metric")
    if not callable(metric) or isinstance(metric, type):
        raise InvalidInput(
            f"The metric {path!r} must be a function of embeddings [N, D] and labels [N] that returns a number; it is "
            f"{metric!r:.100}. Name a function."
        )
    return metric
