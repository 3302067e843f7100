"""Metrics of clusters and distances: k-means, NMI, F1, and distances within and between classes.

Errors are those of :func:`trainables.metrics.gallery.checked`.

Shapes: N images, D embedding, C clusters or classes, R images that are assigned again,
B images of a block.
"""

import torch
from torch.nn.functional import pad

from trainables.common.forecast import Forecast
from trainables.common.vectors import unit
from trainables.metrics.gallery import GRID, ROUNDING, checked, nearest

_ITERATIONS = 25  # faiss's default
_BLOCK_NUMBERS = 2**25
_ROWS = 16384


def kmeans(unit_ND: torch.Tensor, clusters: int, *, seed: int) -> torch.Tensor:
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
        centres_CD = torch.where(moved_C[:, None], _means(unit_ND, clusters_N, centres_CD), centres_CD)
        forecast.add(1)
    return _assigned(unit_ND, centres_CD, clusters_N, moved_C)


def _by_value(unit_ND: torch.Tensor) -> torch.Tensor:
    """Return the images [N] in an order that depends on their vectors alone, along a fixed random direction."""
    direction_D = torch.randn(unit_ND.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    along = [(rows_BD * direction_D.to(unit_ND.device)).sum(1) for rows_BD in unit_ND.split(_ROWS)]
    return (torch.cat(along) * GRID).round().argsort(stable=True)


def _means(unit_ND: torch.Tensor, clusters_N: torch.Tensor, centres_CD: torch.Tensor) -> torch.Tensor:
    sizes_C1 = clusters_N.bincount(minlength=len(centres_CD))[:, None]
    sums_CD = torch.zeros_like(centres_CD).index_add_(0, clusters_N, unit_ND.double())
    return torch.where(sizes_C1 > 0, sums_CD / sizes_C1.clamp(min=1), centres_CD)


def _assigned(
    unit_ND: torch.Tensor, centres_CD: torch.Tensor, clusters_N: torch.Tensor, moved_C: torch.Tensor
) -> torch.Tensor:
    """Return the nearest centre of each image, given the nearest ones before the centres ``moved_C`` moved.

    An image whose centre did not move is compared only with centres that did. After some iterations few move, so that
    all iterations cost about four passes instead of 26.
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


def _nearest_centre(unit_RD: torch.Tensor, centres_CD: torch.Tensor) -> torch.Tensor:
    """Return the nearest centre [R], the first if several are equally near."""
    closeness_R2, found_R2 = nearest(*_with_norm(unit_RD, centres_CD), min(2, len(centres_CD)))
    nearest_R = found_R2[:, 0].clone()
    close_R = (closeness_R2[:, 0] - closeness_R2[:, -1] <= ROUNDING).nonzero().flatten()
    half_norms_C = centres_CD.square().sum(1) / 2
    for rows in close_R.split(max(_BLOCK_NUMBERS // len(centres_CD), 1)):
        exact_RC = unit_RD[rows].double() @ centres_CD.T - half_norms_C
        nearest_R[rows] = (exact_RC * GRID).round().argmax(1)
    return nearest_R


def _with_norm(unit_RD: torch.Tensor, centres_CD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float32 rows whose inner products are x·c − |c|²/2, largest for the nearest centre.

    They have four additional columns, three of them zero, since a GPU multiplies rows of an odd length more slowly.
    """
    half_norms_C1 = centres_CD.square().sum(1, keepdim=True) / 2
    return pad(unit_RD, (0, 4), value=1), pad(torch.cat((centres_CD, -half_norms_C1), 1).float(), (0, 3))


def clusters_of(embeddings_ND: torch.Tensor, labels_N: torch.Tensor, *, seed: int = 0) -> torch.Tensor:
    """Compute the cluster of each image, int64 [N] on the labels' device, with as many clusters as classes."""
    embeddings_ND, _ = checked(embeddings_ND, labels_N)
    unit_ND = unit(embeddings_ND.double()).float()
    return kmeans(unit_ND, len(labels_N.unique()), seed=seed).to(labels_N.device)


def agreement(labels_N: torch.Tensor, clusters_N: torch.Tensor) -> dict[str, float]:
    """Compute ``nmi`` and pairwise ``f1`` (Song et al. 2016) of two partitions of the same images, given by integers.

    Example: classes aabb, clusters 1112: nmi = .344, f1 = 2·(1/3)(1/2)/(1/3 + 1/2) = .4.
    """
    cell_N = labels_N.unique(return_inverse=True)[1] * len(clusters_N) + clusters_N.unique(return_inverse=True)[1]
    counts = [part.unique(return_counts=True)[1].double() for part in (labels_N, clusters_N, cell_N)]
    of_labels, of_clusters, of_cells = (_entropy(sizes) for sizes in counts)
    in_class, in_cluster, in_both = ((sizes * (sizes - 1)).sum().item() for sizes in counts)
    total = of_labels + of_clusters
    pairs = in_class + in_cluster
    return {
        "nmi": 2 * (of_labels + of_clusters - of_cells) / total if total else 1.0,
        "f1": 2 * in_both / pairs if pairs else 1.0,
    }


def _entropy(sizes: torch.Tensor) -> float:
    shares = sizes / sizes.sum()
    return -(shares * shares.log()).sum().item()


_EQUAL = 1e-12
"""The distance of classes, up to rounding errors, whose embeddings are all equal."""


def distances_of(intra_C: torch.Tensor, inter_C: torch.Tensor) -> dict[str, float]:
    """Compute the metrics (Roth et al. 2020) from the result of :func:`class_distances`; NaN without a pair to compare.

    Example: unit vectors at 0° and 90° of class a and at 180° of class b: intra = 1 − cos 90° = 1, inter =
    1 − cos 135° = 1.707.
    """
    within, between = intra_C[~intra_C.isnan()].mean().item(), inter_C.mean().item()
    ratio = within / between if between > _EQUAL else float("nan")
    return {"dists_intra": within, "dists_inter": between, "dists_ratio": ratio}


def class_distances(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
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
