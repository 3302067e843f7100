"""Every metric by name, with its formula, without computing any."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from trainables.mistakes import Mistakes
from trainables.parts import is_own, load_part

# A metric of one's own, by its import path.


def own_metric(path: str) -> Callable[..., Any]:
    """The function at ``path``: of embeddings [N, D] and labels [N], a number that is better when it is larger.

    Raises:
        Mistakes: it is not there, or is no function.
    """
    metric = load_part(path, kind="metric")
    if not callable(metric) or isinstance(metric, type):
        raise Mistakes(
            f"The metric {path!r} must be a function of embeddings [N, D] and labels [N] that gives a number; it is "
            f"{metric!r:.100}. Name a function."
        )
    function: Callable[..., Any] = metric
    return function


# Every metric by name, with its formula: what is known of metrics without computing any.

KS = (1, 2, 4, 8)

AT_K: dict[str, str] = {
    "recall_at_k": "1 if any of the k nearest is of the query's class",
    "precision_at_k": "hits among the k nearest / k",
    "map_at_k": "Σ_{i≤k} P@i·rel_i / k",
    "ndcg_at_k": "Σ_{i≤k} (2^rel_i − 1)/log2(i+1) over that of min(R, k) hits in front (Saeki et al., eq. 19-20)",
}
"""Metrics of the first k ranks; a name has a number where k stands."""

AT_R: dict[str, str] = {
    "map_at_r": "Σ_{i≤R} P@i·rel_i / R",
    "r_precision": "hits among the R nearest / R",
}
"""Metrics of the first R ranks of each query."""

WHOLE: dict[str, str] = {"map": "Σ_i P@i·rel_i / R over the whole ranking"}
"""Metrics of the whole ranking, which cost a sort of all images for each."""

CLUSTERING: dict[str, str] = {
    "nmi": "2 I(classes; clusters) / (H(classes) + H(clusters)) of k-means with as many clusters as classes",
    "f1": "2PR/(P+R) of pairs of images: P of those in one cluster are in one class, R of those in one class",
}

SUPERCLASSES: dict[str, str] = {
    "nmi_super": "nmi of k-means with as many clusters as superclasses, against the superclasses",
    "f1_super": "f1 of the same clusters, against the superclasses",
}
"""Metrics of a data set that groups its classes into fewer, larger ones, as its ``superclasses`` say."""

DISTANCES: dict[str, str] = {
    "dists_intra": "mean cosine distance of two images of a class, averaged over classes of two or more",
    "dists_inter": "mean cosine distance of the normalised means of two classes",
    "dists_ratio": "dists_intra / dists_inter",
}

METRICS: dict[str, str] = {**AT_K, **AT_R, **WHOLE, **CLUSTERING, **SUPERCLASSES, **DISTANCES}
"""Every metric's formula by name. ``_at_k`` stands for any whole number of at least 1: ``recall_at_1``."""


def split_at_k(name: str) -> tuple[str, int] | None:
    """``recall_at_10`` as the row ``recall_at_k`` and 10; None for a metric of another kind."""
    parsed = re.fullmatch(r"([a-z]+)_at_([1-9]\d*)", name)
    row = f"{parsed[1]}_at_k" if parsed else ""
    return (row, int(parsed[2])) if parsed and row in AT_K else None


def split_subset(name: str) -> tuple[str, str | None]:
    """``recall_at_1-small`` as the metric ``recall_at_1`` and ``small``, a part of the test classes that a data set
    names; None where the metric is of all of them.
    """
    metric, _, subset = name.partition("-")
    return (metric, subset) if subset and not is_own(name) else (name, None)


def is_retrieval(name: str) -> bool:
    """Whether ``name`` is a metric of rankings, which each query has a score in."""
    return name in AT_R or name in WHOLE or split_at_k(name) is not None


def is_bounded(name: str) -> bool:
    """Whether every value of the metric is between 0 and 1; of one's own metrics nothing is known."""
    metric, _ = split_subset(name)
    return is_retrieval(metric) or metric in CLUSTERING or metric in SUPERCLASSES


def retrieval_names(ks: Sequence[int]) -> tuple[str, ...]:
    """Every retrieval metric, those of the first k ranks for each of ``ks``."""
    return (*(name.removesuffix("k") + str(k) for name in AT_K for k in ks), *AT_R, *WHOLE)


def all_metrics(ks: Sequence[int] = KS) -> tuple[str, ...]:
    """Every metric that needs nothing but classes, those of the first k ranks for each of ``ks``."""
    return (*retrieval_names(ks), *CLUSTERING, *DISTANCES)


def unknown_metrics(names: Sequence[str]) -> list[str]:
    """Those of ``names`` that are neither a metric's nor the import path of one's own."""
    others = {**CLUSTERING, **SUPERCLASSES, **DISTANCES}
    return [name for name in names if name not in others and not is_retrieval(name) and not is_own(name)]


def superclass_metrics(names: Sequence[str]) -> list[str]:
    """Those of ``names`` for which the superclasses of the images have to be known."""
    return [name for name in names if split_subset(name)[0] in SUPERCLASSES]


def largest_k(names: Sequence[str]) -> int:
    """The largest k that the ``names`` of metrics carry, 0 where none does."""
    return max((found[1] for name in names if (found := split_at_k(split_subset(name)[0]))), default=0)


def name_conflicts(names: Sequence[str]) -> list[str]:
    """The sentences on metrics of one's own whose values would bear the name of another metric."""
    seen: dict[str, str] = {}
    sentences = []
    for path in dict.fromkeys(name for name in names if is_own(name)):
        name = metric_name(path)
        other = name if name in METRICS or is_retrieval(name) else seen.setdefault(name, path)
        if other != path:
            sentences.append(f"The metric {path!r} bears the name of {other!r}: rename the function.")
    return sentences


def metric_name(name: str) -> str:
    """What a metric's value is called: the name, or for an import path that of the function.

    >>> metric_name("mylab.metrics:hubness")
    'hubness'
    """
    return re.split(r"[:.]", name)[-1]
