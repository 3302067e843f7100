"""Any metrics by name, with one neighbour search for all of them.

Shapes: N images, D embedding, Q queries of a block.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from trainables.metrics.clustering import CLUSTERING, clustering_metrics
from trainables.metrics.distances import DISTANCES, distance_metrics
from trainables.metrics.inputs import checked
from trainables.metrics.ranking import Gallery
from trainables.metrics.retrieval import AT_K, AT_R, WHOLE, Ranking, Score
from trainables.mistakes import Mistakes

KS = (1, 2, 4, 8)


def _formula(score: Score) -> str:
    assert score.__doc__ is not None
    return score.__doc__.split(". Example")[0].splitlines()[0]


METRICS: dict[str, str] = {
    **{name: _formula(score) for name, score in {**AT_K, **AT_R, **WHOLE}.items()},
    **CLUSTERING,
    **DISTANCES,
}
"""Every metric's formula by name. ``_at_k`` stands for any whole number of at least 1: ``recall_at_1``."""


@dataclass(frozen=True, kw_only=True)
class _Query:
    """A retrieval metric asked for by ``name``: its score and how many ranks it reads."""

    score: Score
    k: int


def _retrieval(name: str, depth_r: int, depth_whole: int) -> _Query | None:
    if name in AT_R:
        return _Query(score=AT_R[name], k=depth_r)
    if name in WHOLE:
        return _Query(score=WHOLE[name], k=depth_whole)
    parsed = re.fullmatch(r"([a-z]+)_at_([1-9]\d*)", name)
    score = AT_K.get(f"{parsed[1]}_at_k") if parsed else None
    return _Query(score=score, k=int(parsed[2])) if parsed and score else None


def _retrieval_names(ks: Sequence[int]) -> tuple[str, ...]:
    return (*(name.removesuffix("k") + str(k) for name in AT_K for k in ks), *AT_R, *WHOLE)


def unknown_metrics(names: Sequence[str]) -> list[str]:
    """Those of ``names`` that are no metric's."""
    others = {**CLUSTERING, **DISTANCES}
    return [name for name in names if name not in others and _retrieval(name, 0, 0) is None]


def all_metrics(ks: Sequence[int] = KS) -> tuple[str, ...]:
    """Every name there is, the metrics of the first k ranks for each of ``ks``."""
    return (*_retrieval_names(ks), *CLUSTERING, *DISTANCES)


def largest_k(names: Sequence[str]) -> int:
    """The largest k that the ``names`` of metrics carry, 0 where none does."""
    return max((query.k for name in names if (query := _retrieval(name, 0, 0))), default=0)


def evaluate(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    names: Sequence[str] | Literal["all"],
    *,
    ks: Sequence[int] = KS,
    exclude_singletons: bool = False,
    seed: int = 0,
) -> dict[str, float]:
    """The metrics called ``names``, in their order; "all" is :func:`all_metrics` of ``ks``.

    ``exclude_singletons`` leaves out of the retrieval metrics the queries whose class has no other image,
    which otherwise count as misses; ``seed`` is that of k-means.

    Raises:
        Mistakes: an unknown name, no embeddings, not finite, or labels of another number.
    """
    names = all_metrics(ks) if names == "all" else tuple(names)
    retrieval = [name for name in names if name not in CLUSTERING and name not in DISTANCES]
    values: dict[str, float] = {}
    if retrieval:
        values |= _means(embeddings_ND, labels_N, retrieval, exclude_singletons)
    if not CLUSTERING.keys().isdisjoint(names):
        values |= clustering_metrics(embeddings_ND, labels_N, seed=seed)
    if not DISTANCES.keys().isdisjoint(names):
        values |= distance_metrics(embeddings_ND, labels_N)
    return {name: values[name] for name in names}


def retrieval_metrics(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    ks: Sequence[int] = KS,
    *,
    exclude_singletons: bool = False,
) -> dict[str, float]:
    """Every retrieval metric, for each k of ``ks`` where it has one.

    Each image is a query against all others. This includes ``map``, which ranks all images for each query;
    :func:`evaluate` computes what is named.

    Raises:
        Mistakes: a k below 1, no embeddings, not finite, or labels of another number.
    """
    return _means(embeddings_ND, labels_N, _retrieval_names(ks), exclude_singletons)


def per_query_metrics(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    names: Sequence[str] | Literal["all"] = "all",
    *,
    ks: Sequence[int] = KS,
) -> dict[str, torch.Tensor]:
    """The score of each query in the retrieval metrics called ``names``: float64 [N], whose means are theirs.

    "all" is every retrieval metric, those of the first k ranks for each of ``ks``.

    Raises:
        Mistakes: a name of no retrieval metric, no embeddings, not finite, or labels of another number.
    """
    names = _retrieval_names(ks) if names == "all" else tuple(names)
    if wrong := [name for name in names if _retrieval(name, 0, 0) is None]:
        raise Mistakes(
            f"{', '.join(wrong)} cannot be scored by query: name some of {', '.join((*AT_K, *AT_R, *WHOLE))}."
        )
    embeddings_ND, labels_N = checked(embeddings_ND, labels_N)
    positives_N = _positives(labels_N)
    queries = {name: _retrieval(name, int(positives_N.max()), len(labels_N) - 1) for name in names}
    depth = max((query.k for query in queries.values() if query), default=1)
    scores = {name: torch.zeros(len(labels_N), dtype=torch.float64) for name in names}
    for numbers_Q, relevant_QK in Gallery(embeddings_ND, labels_N).relevance(max(depth, 1)):
        ranking = Ranking(relevant_QK=relevant_QK, positives_Q=positives_N[numbers_Q])
        for name, query in queries.items():
            assert query is not None
            scores[name][numbers_Q.cpu()] = query.score(ranking, query.k).cpu()
    return scores


def _positives(labels_N: torch.Tensor) -> torch.Tensor:
    """R [N]: how many other images each image's class has."""
    _, class_N, sizes_C = labels_N.unique(return_inverse=True, return_counts=True)
    return sizes_C[class_N] - 1


def _means(
    embeddings_ND: torch.Tensor, labels_N: torch.Tensor, names: Sequence[str], exclude_singletons: bool
) -> dict[str, float]:
    scores = per_query_metrics(embeddings_ND, labels_N, names)
    keep_N = _positives(labels_N).cpu() > 0 if exclude_singletons else slice(None)
    return {name: score_N[keep_N].mean().item() for name, score_N in scores.items()}
