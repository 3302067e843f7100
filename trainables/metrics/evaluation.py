"""Metrics by name, computed with one neighbour search for all of them.

Shapes: N images, D embedding, Q queries of a block, K ranks, C classes.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch

from trainables.metrics.clustering import (
    agreement,
    class_distances,
    clustering_metrics,
    clusters_of,
    distance_metrics,
    distances_of,
    superclass_agreement,
)
from trainables.metrics.ranking import Gallery, checked, checked_superclasses
from trainables.metrics.retrieval import SCORES, Ranking
from trainables.metrics.table import (
    AT_K,
    AT_R,
    CLUSTERING,
    DISTANCES,
    KS,
    SUPERCLASSES,
    WHOLE,
    all_metrics,
    is_retrieval,
    metric_name,
    name_conflicts,
    own_metric,
    retrieval_names,
    split_at_k,
    superclass_metrics,
)
from trainables.mistakes import Mistakes, raise_if_any, suggestion
from trainables.parts import is_own


def evaluate(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    names: Sequence[str] | Literal["all"],
    *,
    ks: Sequence[int] = KS,
    exclude_singletons: bool = False,
    seed: int = 0,
    queries: int | None = None,
    superclasses_N: torch.Tensor | None = None,
) -> dict[str, float]:
    """Compute metrics by name, in the order of ``names``.

    Args:
        embeddings_ND: embeddings of any length.
        labels_N: class of each image.
        names: metrics, or import paths of user-defined ones, whose values are named after their functions; "all" for
            :func:`all_metrics` of ``ks``.
        ks: values of k for "all".
        exclude_singletons: ignore queries whose class has no other image; otherwise they count as misses.
        seed: seed of k-means.
        queries: use only the first ``queries`` images as queries and the others only as gallery. All other metrics are
            computed on the queries. None for every image.
        superclasses_N: superclass of each image, for ``nmi_super`` and ``f1_super``.

    Raises:
        Mistakes: an unknown name, an import path without a metric, no embeddings, not finite, labels of another
            number, or no superclasses for a metric that needs them.
    """
    names = all_metrics(ks) if names == "all" else tuple(names)
    raise_if_any(name_conflicts(names))
    own = {name: own_metric(name) for name in names if is_own(name)}
    retrieval = [name for name in names if name not in {**CLUSTERING, **SUPERCLASSES, **DISTANCES, **own}]
    values: dict[str, float] = {}
    if retrieval:
        values |= _means(embeddings_ND, labels_N, retrieval, exclude_singletons, queries)
    embeddings_ND, labels_N = embeddings_ND[:queries], labels_N[:queries]
    if not CLUSTERING.keys().isdisjoint(names):
        values |= clustering_metrics(embeddings_ND, labels_N, seed=seed)
    if superclass_metrics(names):
        superclasses_N = checked_superclasses(names, superclasses_N)[:queries]
        values |= superclass_agreement(superclasses_N, clusters_of(embeddings_ND, superclasses_N, seed=seed))
    if not DISTANCES.keys().isdisjoint(names):
        values |= distance_metrics(embeddings_ND, labels_N)
    if own:
        on_cpu = checked(embeddings_ND.cpu(), labels_N.cpu())  # user-defined metrics need not support GPUs
        values |= {name: float(score(*on_cpu)) for name, score in own.items()}
    return {metric_name(name): values[name] for name in names}


def retrieval_metrics(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    ks: Sequence[int] = KS,
    *,
    exclude_singletons: bool = False,
) -> dict[str, float]:
    """Compute all retrieval metrics, with every image as a query against all others.

    This includes ``map``, which ranks all images for each query; :func:`evaluate` computes only those named.

    Raises:
        Mistakes: a k below 1, no embeddings, not finite, or labels of another number.
    """
    return _means(embeddings_ND, labels_N, retrieval_names(ks), exclude_singletons, None)


def per_query_metrics(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    names: Sequence[str] | Literal["all"] = "all",
    *,
    ks: Sequence[int] = KS,
    queries: int | None = None,
) -> dict[str, torch.Tensor]:
    """Compute the score of each query in retrieval metrics: float64 [queries], whose mean is the metric.

    "all" is every retrieval metric, those of the first k ranks for each of ``ks``. The first ``queries`` images are the
    queries, None for all.

    Raises:
        Mistakes: a name of no retrieval metric, no embeddings, not finite, or labels of another number.
    """
    names = retrieval_names(ks) if names == "all" else tuple(names)
    if wrong := [name for name in names if not is_retrieval(name)]:
        raise Mistakes(
            f"{', '.join(wrong)} cannot be scored by query{suggestion(wrong[0], retrieval_names(ks))}: name metrics "
            f"among {', '.join((*AT_K, *AT_R, *WHOLE))}."
        )
    embeddings_ND, labels_N = checked(embeddings_ND, labels_N)
    queries = len(labels_N) if queries is None else queries
    positives_N = _positives(labels_N)[:queries]
    wanted = {name: _score_and_depth(name, int(positives_N.max()), len(labels_N) - 1) for name in names}
    depth = max((depth for _, depth in wanted.values()), default=1)
    scores = {name: torch.zeros(queries, dtype=torch.float64) for name in names}
    for numbers_Q, relevant_QK in Gallery(embeddings_ND, labels_N).relevance(max(depth, 1), queries):
        ranking = Ranking(relevant_QK=relevant_QK, positives_Q=positives_N[numbers_Q])
        for name, (row, k) in wanted.items():
            scores[name][numbers_Q.cpu()] = SCORES[row](ranking, k).cpu()
    return scores


def _score_and_depth(name: str, depth_r: int, depth_whole: int) -> tuple[str, int]:
    """Return a retrieval metric's row and the number of ranks that it reads."""
    if name in AT_R:
        return name, depth_r
    return split_at_k(name) or (name, depth_whole)


def _positives(labels_N: torch.Tensor) -> torch.Tensor:
    """Return R [N], the number of other images in each image's class."""
    _, class_N, sizes_C = labels_N.unique(return_inverse=True, return_counts=True)
    return sizes_C[class_N] - 1


def _means(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    names: Sequence[str],
    exclude_singletons: bool,
    queries: int | None,
) -> dict[str, float]:
    scores = per_query_metrics(embeddings_ND, labels_N, names, queries=queries)
    keep_N = _positives(labels_N)[:queries].cpu() > 0 if exclude_singletons else slice(None)
    return {name: score_N[keep_N].mean().item() for name, score_N in scores.items()}


# Parts of metrics by image or class, from which the metrics can be recomputed without embeddings.

CLUSTERS = "clusters"
SUPERCLASS, CLUSTERS_SUPER = "superclass", "clusters_super"
INTRA, INTER = "class_distances_intra", "class_distances_inter"


def metric_parts(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    names: Sequence[str],
    superclasses_N: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """Compute the parts of metrics; user-defined ones have none.

    A retrieval metric's part is the score of each query, under its name. Clustering has the cluster of each image, and
    with superclasses also the superclass and the cluster among as many clusters as superclasses. Distances have those
    within and from each class.

    Raises:
        Mistakes: no embeddings, not finite, labels of another number, or no superclasses for a metric that needs them.
    """
    parts = per_query_metrics(embeddings_ND, labels_N, [name for name in names if is_retrieval(name)])
    if not CLUSTERING.keys().isdisjoint(names):
        parts[CLUSTERS] = clusters_of(embeddings_ND, labels_N)
    if superclass_metrics(names):
        parts[SUPERCLASS] = checked_superclasses(names, superclasses_N)
        parts[CLUSTERS_SUPER] = clusters_of(embeddings_ND, parts[SUPERCLASS])
    if not DISTANCES.keys().isdisjoint(names):
        parts[INTRA], parts[INTER] = class_distances(embeddings_ND, labels_N)
    return parts


def from_parts(parts: Mapping[str, torch.Tensor], labels_N: torch.Tensor, names: Sequence[str]) -> dict[str, float]:
    """Compute the metrics ``names`` that have parts."""
    values = {name: parts[name].mean().item() for name in names if is_retrieval(name)}
    if not CLUSTERING.keys().isdisjoint(names):
        values |= agreement(labels_N, parts[CLUSTERS])
    if superclass_metrics(names):
        values |= superclass_agreement(parts[SUPERCLASS], parts[CLUSTERS_SUPER])
    if not DISTANCES.keys().isdisjoint(names):
        values |= distances_of(parts[INTRA], parts[INTER])
    return {name: values[name] for name in names if name in values}
