"""Metrics by name, computed with one neighbour search for all of them, and those of clusters and distances.

Shapes: N images, D embedding, Q queries of a block, K ranks, C clusters or classes, R images that are assigned again,
B images of a block.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from trainables.common.errors import InvalidInput, raise_if_any, suggestion, without_password
from trainables.common.forecast import Forecast
from trainables.common.part_tables import is_own
from trainables.common.process import contained
from trainables.common.vectors import number, unit
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
from trainables.metrics.gallery import GRID, ROUNDING, Gallery, checked, nearest
from trainables.metrics.retrieval import SCORES, RetrievalProtocol


def evaluate(
    embeddings_ND: Tensor,
    labels_N: Tensor,
    names: Sequence[str] | Literal["all"],
    *,
    ks: Sequence[int] = KS,
    exclude_singletons: bool = False,
    seed: int = 0,
    queries: int | None = None,
    superclasses_N: Tensor | None = None,
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
        positives_N, _ = _of_all_images(protocol, len(labels_N), len(labels_of_all_N)).counts(labels_of_all_N)
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


def _own_value(name: str, score: Callable[..., Any], embeddings_ND: Tensor, labels_N: Tensor) -> float:
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


def _of_all_images(protocol: RetrievalProtocol | None, queries: int, images: int) -> RetrievalProtocol:
    """Return the protocol of all images: the first are the queries, or those that ``protocol`` is of."""
    if protocol is None:
        return RetrievalProtocol.first(queries, images)
    protocol.check(queries)
    return protocol.with_further(images - queries)


def per_query_metrics(
    embeddings_ND: Tensor,
    labels_N: Tensor,
    names: Sequence[str] | Literal["all"] = "all",
    *,
    ks: Sequence[int] = KS,
    queries: int | None = None,
    protocol: RetrievalProtocol | None = None,
) -> dict[str, Tensor]:
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
    protocol = _of_all_images(protocol, queries, len(labels_N))
    scores = {name: torch.full((queries,), torch.nan, dtype=torch.float64) for name in names}
    gallery = Gallery(embeddings_ND, labels_N, protocol)
    if whole := [name for name in names if name in WHOLE]:
        forecast = Forecast(f"Whole rankings of {len(gallery.queries_Q):,} queries", len(gallery.queries_Q))
        for numbers_Q, precision_Q in gallery.average_precisions():
            for name in whole:
                scores[name][numbers_Q.cpu()] = precision_Q.cpu()
            forecast.add(len(numbers_Q))
    depth_r = int(gallery.positives_N[gallery.queries_Q].max())
    wanted = {name: split_at_k(name) or (name, depth_r) for name in names if name not in WHOLE}
    depth = max([1, *(depth for _, depth in wanted.values())])
    forecast = Forecast(f"Neighbours of {len(gallery.queries_Q):,} queries", len(gallery.queries_Q))
    for numbers_Q, ranking in gallery.rankings(depth) if wanted else ():
        for name, (row, k) in wanted.items():
            scores[name][numbers_Q.cpu()] = SCORES[row](ranking, k).cpu()
        forecast.add(len(numbers_Q))
    return scores


# Parts of metrics by image or class, from which the metrics can be recomputed without embeddings.

CLUSTERS = "clusters"
SUPERCLASS, CLUSTERS_SUPER = "superclass", "clusters_super"
INTRA, INTER = "class_distances_intra", "class_distances_inter"


def metric_parts(
    embeddings_ND: Tensor,
    labels_N: Tensor,
    names: Sequence[str],
    superclasses_N: Tensor | None = None,
    protocol: RetrievalProtocol | None = None,
    *,
    queries: int | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Compute the parts of metrics, with the arguments and errors of :func:`evaluate`; user-defined ones have none.

    A retrieval metric's part is the score of each query, under its name, NaN for other images. Clustering has the
    cluster of each image, and with superclasses also the superclass and the cluster among as many clusters as
    superclasses. Distances have those within and from each class.
    """
    retrieval = [name for name in names if is_retrieval(name)]
    parts: dict[str, Tensor] = {}
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


def from_parts(parts: Mapping[str, Tensor], labels_N: Tensor, names: Sequence[str]) -> dict[str, float]:
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


# Clusters and distances; errors are those of :func:`trainables.metrics.gallery.checked`.

_ITERATIONS = 25  # faiss's default
_BLOCK_NUMBERS = 2**25
_ROWS = 16384


def kmeans(unit_ND: Tensor, clusters: int, *, seed: int) -> Tensor:
    """Compute the cluster of each image [N] as ``faiss.Kmeans`` does: Lloyd's algorithm from a seeded choice of images.

    It stops after 25 iterations or when no image changes its cluster. The centre of an empty cluster does not move.

    Clusters depend neither on the order of the images nor on the device, the number of threads or whether faiss is
    installed: nearest centres are found in float32, and those that are as near up to rounding are compared in float64.
    """
    start_C = torch.randperm(len(unit_ND), generator=torch.Generator().manual_seed(seed))[:clusters]
    centres_CD = unit_ND[_by_value(unit_ND)[start_C.to(unit_ND.device)]].double()
    moved_C = torch.ones(clusters, dtype=torch.bool, device=unit_ND.device)
    clusters_N = torch.zeros(len(unit_ND), dtype=torch.int64, device=unit_ND.device)
    forecast = Forecast(f"k-means of {len(unit_ND):,} items in {clusters:,} clusters, at most", _ITERATIONS)
    for iteration in range(_ITERATIONS):
        before_N, clusters_N = clusters_N, _assigned(unit_ND, centres_CD, clusters_N, moved_C)
        if iteration:
            changed_N = clusters_N != before_N
            moved_C = torch.zeros_like(moved_C)
            moved_C[clusters_N[changed_N]] = moved_C[before_N[changed_N]] = True
        if not moved_C.any():
            return clusters_N
        sizes_C1 = clusters_N.bincount(minlength=clusters)[:, None]
        sums_CD = torch.zeros_like(centres_CD).index_add_(0, clusters_N, unit_ND.double())
        centres_CD = torch.where(moved_C[:, None] & (sizes_C1 > 0), sums_CD / sizes_C1.clamp(min=1), centres_CD)
        forecast.add(1)
    return _assigned(unit_ND, centres_CD, clusters_N, moved_C)


def _by_value(unit_ND: Tensor) -> Tensor:
    """Return the images [N] in an order that depends on their vectors alone, along a fixed random direction."""
    direction_D = torch.randn(unit_ND.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    along = [(rows_BD * direction_D.to(unit_ND.device)).sum(1) for rows_BD in unit_ND.split(_ROWS)]
    return (torch.cat(along) * GRID).round().argsort(stable=True)


def _assigned(unit_ND: Tensor, centres_CD: Tensor, clusters_N: Tensor, moved_C: Tensor) -> Tensor:
    """Return the nearest centre of each image, given the nearest ones before the centres ``moved_C`` moved.

    An image whose centre did not move is compared only with centres that did: about four passes instead of 26.
    """
    again_N = moved_C[clusters_N]
    stayed_R = (~again_N).nonzero().flatten()
    if len(stayed_R):
        with_norm_R, with_norm_CD = _with_norm(unit_ND[stayed_R], centres_CD)
        own_R = (with_norm_R * with_norm_CD[clusters_N[stayed_R]]).sum(1)
        best_R = nearest(with_norm_R, with_norm_CD[moved_C], 1)[0][:, 0]
        again_N[stayed_R] = best_R >= own_R - ROUNDING
    assigned_N = clusters_N.clone()
    assigned_N[again_N] = _nearest_centre(unit_ND[again_N], centres_CD)
    return assigned_N


def _nearest_centre(unit_RD: Tensor, centres_CD: Tensor) -> Tensor:
    """Return the nearest centre [R], the first if several are equally near."""
    closeness_R2, found_R2 = nearest(*_with_norm(unit_RD, centres_CD), min(2, len(centres_CD)))
    nearest_R = found_R2[:, 0].clone()
    close_R = (closeness_R2[:, 0] - closeness_R2[:, -1] <= ROUNDING).nonzero().flatten()
    half_norms_C = centres_CD.square().sum(1) / 2
    for rows in close_R.split(max(_BLOCK_NUMBERS // len(centres_CD), 1)):
        exact_RC = unit_RD[rows].double() @ centres_CD.T - half_norms_C
        nearest_R[rows] = (exact_RC * GRID).round().argmax(1)
    return nearest_R


def _with_norm(unit_RD: Tensor, centres_CD: Tensor) -> tuple[Tensor, Tensor]:
    """Return float32 rows whose inner products are x·c − |c|²/2, largest for the nearest centre.

    They have four additional columns, three of them zero, since a GPU multiplies rows of an odd length more slowly.
    """
    half_norms_C1 = centres_CD.square().sum(1, keepdim=True) / 2
    return pad(unit_RD, (0, 4), value=1), pad(torch.cat((centres_CD, -half_norms_C1), 1).float(), (0, 3))


def clusters_of(embeddings_ND: Tensor, labels_N: Tensor, *, seed: int = 0) -> Tensor:
    """Compute the cluster of each image, int64 [N] on the labels' device, with as many clusters as classes."""
    embeddings_ND, _ = checked(embeddings_ND, labels_N)
    unit_ND = unit(embeddings_ND.double()).float()
    return kmeans(unit_ND, len(labels_N.unique()), seed=seed).to(labels_N.device)


def agreement(labels_N: Tensor, clusters_N: Tensor) -> dict[str, float]:
    """Compute ``nmi`` and pairwise ``f1`` (Song et al. 2016) of two partitions of the same images, given by integers.

    Example: classes aabb, clusters 1112: nmi = .344, f1 = 2·(1/3)(1/2)/(1/3 + 1/2) = .4.
    """
    cell_N = labels_N.unique(return_inverse=True)[1] * len(clusters_N) + clusters_N.unique(return_inverse=True)[1]
    counts = [part.unique(return_counts=True)[1].double() for part in (labels_N, clusters_N, cell_N)]
    shares = (sizes / sizes.sum() for sizes in counts)
    of_labels, of_clusters, of_cells = (-(share * share.log()).sum().item() for share in shares)
    in_class, in_cluster, in_both = ((sizes * (sizes - 1)).sum().item() for sizes in counts)
    total = of_labels + of_clusters
    pairs = in_class + in_cluster
    return {
        "nmi": 2 * (of_labels + of_clusters - of_cells) / total if total else 1.0,
        "f1": 2 * in_both / pairs if pairs else 1.0,
    }


_EQUAL = 1e-12
"""The distance of classes, up to rounding errors, whose embeddings are all equal."""


def distances_of(intra_C: Tensor, inter_C: Tensor) -> dict[str, float]:
    """Compute the metrics (Roth et al. 2020) from the result of :func:`class_distances`; NaN without a pair to compare.

    Example: unit vectors at 0° and 90° of class a and at 180° of class b: intra = 1 − cos 90° = 1, inter =
    1 − cos 135° = 1.707.
    """
    within, between = intra_C[~intra_C.isnan()].mean().item(), inter_C.mean().item()
    ratio = within / between if between > _EQUAL else float("nan")
    return {"dists_intra": within, "dists_inter": between, "dists_ratio": ratio}


def class_distances(embeddings_ND: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean cosine distance within each class, and from its mean to the other classes' means: float64 [C].

    The first is NaN for a class of one image, the second if there is only one class.
    """
    embeddings_ND, labels_N = checked(embeddings_ND, labels_N)
    _, class_N, sizes_C = labels_N.unique(return_inverse=True, return_counts=True)
    sums_CD = torch.zeros(len(sizes_C), embeddings_ND.shape[1], dtype=torch.float64, device=embeddings_ND.device)
    squares_C = sums_CD.new_zeros(len(sizes_C))
    for rows_BD, class_B in zip(embeddings_ND.split(_ROWS), class_N.split(_ROWS), strict=True):
        unit_BD = unit(rows_BD.double())
        sums_CD.index_add_(0, class_B, unit_BD)
        squares_C.index_add_(0, class_B, unit_BD.square().sum(1))
    # Σ_{i≠j} x_i·x_j = |Σ x|² − Σ x·x
    intra_C = 1 - (sums_CD.square().sum(1) - squares_C) / (sizes_C * (sizes_C - 1))
    intra_C[sizes_C < 2] = float("nan")
    means_CD = unit(sums_CD)
    others_C = means_CD @ means_CD.sum(0) - means_CD.square().sum(1)
    inter_C = 1 - others_C / (len(sizes_C) - 1) if len(sizes_C) > 1 else torch.full_like(others_C, float("nan"))
    return intra_C.cpu(), inter_C.cpu()
