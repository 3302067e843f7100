"""Metrics by name, computed with one neighbour search for all of them.

Shapes: N images, D embedding, Q queries of a block, K ranks, C classes.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import torch

from trainables.common.errors import InvalidInput, raise_if_any, suggestion, without_password
from trainables.common.forecast import Forecast
from trainables.common.part_tables import is_own
from trainables.common.process import contained
from trainables.common.vectors import number
from trainables.metrics import (
    AT_K,
    AT_R,
    CLUSTERING,
    DISTANCES,
    KS,
    METRICS,
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
    unknown_metrics,
)
from trainables.metrics.clustering import agreement, class_distances, clusters_of, distances_of
from trainables.metrics.gallery import Gallery, checked
from trainables.metrics.retrieval import SCORES, RetrievalProtocol, average_precision


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
    protocol: RetrievalProtocol | None = None,
    undefined: dict[str, str] | None = None,
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
        protocol: queries and gallery among the first ``queries`` images, for the retrieval metrics; all other metrics
            use both. None: each is a query against all others.
        undefined: filled with the reason, by name, of each user-defined metric that raises, whose value is then NaN.
            None: the reason is raised.

    Raises:
        InvalidInput: an unknown name, an import path without a metric, no embeddings, not finite, labels of another
            number, or no superclasses for a metric that needs them.
    """
    names = all_metrics(ks) if names == "all" else (names,) if isinstance(names, str) else tuple(names)
    near = (*all_metrics(ks), *SUPERCLASSES)
    unknown = [
        f"{name} is not known{suggestion(name, near)}; choose one of {', '.join(METRICS)}, or give the import path of "
        "your own."
        for name in unknown_metrics(names)
    ]
    raise_if_any([*unknown, *name_conflicts(names)])
    own = {name: own_metric(name) for name in names if is_own(name)}
    parts = metric_parts(embeddings_ND, labels_N, names, superclasses_N, protocol, queries=queries, seed=seed)
    embeddings_ND, labels_of_all_N, labels_N = embeddings_ND[:queries], labels_N.cpu(), labels_N[:queries]
    if exclude_singletons:
        positives_N, _ = _whole_protocol(len(labels_of_all_N), len(labels_N), protocol).counts(labels_of_all_N)
        found_Q = positives_N[: len(labels_N)] > 0
        parts |= {name: part[found_Q] for name, part in parts.items() if is_retrieval(name)}
    values = from_parts(parts, labels_N, names)
    if own:
        on_cpu = checked(embeddings_ND.cpu(), labels_N.cpu())  # user-defined metrics need not support GPUs
        for name, score in own.items():
            try:
                values[name] = _own_value(name, score, *on_cpu)
            except InvalidInput as error:
                if undefined is None:
                    raise
                values[name], undefined[metric_name(name)] = torch.nan, error.sentences[0]
    return {metric_name(name): values[name] for name in names}


def _own_value(name: str, score: Callable[..., Any], embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> float:
    """Return the value of a user-defined metric, which gets tensors of its own."""
    try:
        with contained():
            value = score(embeddings_ND.clone(), labels_N.clone())
    except Exception as error:
        raise InvalidInput(
            f"The metric {name} must return a number; it raises {type(error).__name__}: {error}; fix its code."
        ) from error
    with suppress(Exception):  # of any library
        return number(value, name)
    shown = without_password(repr(value))
    raise InvalidInput(f"The metric {name} must return a number; it returned {shown:.60}; fix its code.")


def per_query_metrics(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    names: Sequence[str] | Literal["all"] = "all",
    *,
    ks: Sequence[int] = KS,
    queries: int | None = None,
    protocol: RetrievalProtocol | None = None,
) -> dict[str, torch.Tensor]:
    """Compute the score of each query in retrieval metrics: float64 [queries], whose mean is the metric.

    "all" is every retrieval metric, those of the first k ranks for each of ``ks``. The first ``queries`` images are the
    queries, None for all; with a ``protocol`` the score of an image among them that is no query is NaN.

    Raises:
        InvalidInput: a name of no retrieval metric, no embeddings, not finite, or labels of another number.
    """
    names = retrieval_names(ks) if names == "all" else tuple(names)
    if wrong := [name for name in names if not is_retrieval(name)]:
        raise InvalidInput(
            f"{', '.join(wrong)} cannot be scored by query{suggestion(wrong[0], retrieval_names(ks))}: name metrics "
            f"among {', '.join((*AT_K, *AT_R, *WHOLE))}."
        )
    embeddings_ND, labels_N = checked(embeddings_ND, labels_N)
    queries = len(labels_N) if queries is None else queries
    protocol = _whole_protocol(len(labels_N), queries, protocol).to(labels_N.device)
    positives_N, _ = protocol.counts(labels_N)
    scores = {name: torch.full((queries,), torch.nan, dtype=torch.float64) for name in names}
    gallery = Gallery(embeddings_ND, labels_N, protocol)
    if whole := [name for name in names if name in WHOLE]:
        forecast = Forecast(f"Whole rankings of {len(gallery.queries_Q):,} queries", len(gallery.queries_Q))
        for numbers_Q, hits in gallery.hits():
            precision_Q = average_precision(hits, positives_N[numbers_Q]).cpu()
            for name in whole:
                scores[name][numbers_Q.cpu()] = precision_Q
            forecast.add(len(numbers_Q))
    depth_r = int(positives_N[gallery.queries_Q].max())
    wanted = {name: split_at_k(name) or (name, depth_r) for name in names if name not in WHOLE}
    depth = max([1, *(depth for _, depth in wanted.values())])
    forecast = Forecast(f"Neighbours of {len(gallery.queries_Q):,} queries", len(gallery.queries_Q))
    for numbers_Q, ranking in gallery.rankings(depth) if wanted else ():
        for name, (row, k) in wanted.items():
            scores[name][numbers_Q.cpu()] = SCORES[row](ranking, k).cpu()
        forecast.add(len(numbers_Q))
    return scores


def _whole_protocol(images: int, queries: int, protocol: RetrievalProtocol | None) -> RetrievalProtocol:
    """Return the protocol of all images, the last of which are in the gallery only."""
    if protocol is None:
        return RetrievalProtocol.first(queries, images)
    protocol.check(queries)
    return protocol.with_further(images - queries)


# Parts of metrics by image or class, from which the metrics can be recomputed without embeddings.

CLUSTERS = "clusters"
SUPERCLASS, CLUSTERS_SUPER = "superclass", "clusters_super"
INTRA, INTER = "class_distances_intra", "class_distances_inter"


def metric_parts(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    names: Sequence[str],
    superclasses_N: torch.Tensor | None = None,
    protocol: RetrievalProtocol | None = None,
    *,
    queries: int | None = None,
    seed: int = 0,
) -> dict[str, torch.Tensor]:
    """Compute the parts of metrics, with the arguments of :func:`evaluate`; user-defined ones have none.

    A retrieval metric's part is the score of each query, under its name, NaN for other images. Clustering has the
    cluster of each image, and with superclasses also the superclass and the cluster among as many clusters as
    superclasses. Distances have those within and from each class.

    Raises:
        InvalidInput: no embeddings, not finite, labels of another number, or no superclasses for a metric that needs
            them.
    """
    retrieval = [name for name in names if is_retrieval(name)]
    parts: dict[str, torch.Tensor] = {}
    if retrieval:
        parts = per_query_metrics(embeddings_ND, labels_N, retrieval, queries=queries, protocol=protocol)
    embeddings_ND, labels_N = embeddings_ND[:queries], labels_N[:queries]
    if not CLUSTERING.keys().isdisjoint(names):
        parts[CLUSTERS] = clusters_of(embeddings_ND, labels_N, seed=seed)
    if superclass_metrics(names):
        if superclasses_N is None:
            raise InvalidInput(
                f"{', '.join(superclass_metrics(names))} compares clusters with superclasses, and there are none: give "
                "the superclass of each image."
            )
        parts[SUPERCLASS] = superclasses_N[:queries].cpu()
        parts[CLUSTERS_SUPER] = clusters_of(embeddings_ND, parts[SUPERCLASS], seed=seed)
    if not DISTANCES.keys().isdisjoint(names):
        parts[INTRA], parts[INTER] = class_distances(embeddings_ND, labels_N)
    return parts


def from_parts(parts: Mapping[str, torch.Tensor], labels_N: torch.Tensor, names: Sequence[str]) -> dict[str, float]:
    """Compute the metrics ``names`` that have parts."""
    values = {name: parts[name].nanmean().item() for name in names if is_retrieval(name)}
    if not CLUSTERING.keys().isdisjoint(names):
        values |= agreement(labels_N, parts[CLUSTERS])
    if superclass_metrics(names):
        found = agreement(parts[SUPERCLASS], parts[CLUSTERS_SUPER])
        values |= {f"{name}_super": value for name, value in found.items()}
    if not DISTANCES.keys().isdisjoint(names):
        values |= distances_of(parts[INTRA], parts[INTER])
    return {name: values[name] for name in names if name in values}
