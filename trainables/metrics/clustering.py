"""Metrics of clusters and distances: k-means, NMI, F1, and distances within and between classes.

Shapes: N images, D embedding, C clusters or classes, R images that are assigned again,
B images of a block, K candidates, F clusters with images, H halves of clusters.
"""

import torch
from torch.nn.functional import pad

from trainables.forecast import Forecast
from trainables.metrics.ranking import GRID, ROUNDING, checked, nearest
from trainables.unit import unit

_ITERATIONS = 25  # faiss's default
_BLOCK_NUMBERS = 2**25
_ROWS = 16384

_BUDGET = 2**30
"""Most images × clusters that the refinement compares."""

_FEWEST_PASSES = 4
"""Fewer passes end in the middle of the moves, which may lower F1; Lloyd's result is then kept (SOP's test set)."""

_MOST_PASSES = 1000
_GAIN = 1e-9  # less is rounding
_HALVING = 5


def kmeans(unit_ND: torch.Tensor, clusters: int, *, seed: int) -> torch.Tensor:
    """Compute the cluster of each image [N] with k-means: :func:`lloyd`, refined by :func:`_refined`.

    Lloyd's algorithm alone ends near its start, also with ten k-means++ starts: with many clusters some begin with two
    classes and some classes with two clusters. The refinement corrects that, so that one random start is enough.

    Clusters are the same on every device, with or without faiss: nearest centres are found in float32, and those that
    are as near up to rounding are compared again in float64.
    """
    return _refined(unit_ND, lloyd(unit_ND, clusters, seed=seed), clusters)


def lloyd(unit_ND: torch.Tensor, clusters: int, *, seed: int) -> torch.Tensor:
    """Compute the cluster of each image [N] with Lloyd's algorithm, from a seeded choice of images.

    It stops after 25 iterations or when no image changes its cluster. The centre of an empty cluster does not move.
    """
    start_C = torch.randperm(len(unit_ND), generator=torch.Generator().manual_seed(seed))[:clusters]
    centres_CD = unit_ND[start_C.to(unit_ND.device)].double()
    moved_C = torch.ones(clusters, dtype=torch.bool, device=unit_ND.device)
    clusters_N = torch.zeros(len(unit_ND), dtype=torch.int64, device=unit_ND.device)
    forecast = Forecast(f"k-means of {len(unit_ND):,} images in {clusters:,} clusters, at most", _ITERATIONS)
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


# Refinement: moves of single images (Hartigan's method), and exchanges of a split for a merge.


def _refined(unit_ND: torch.Tensor, clusters_N: torch.Tensor, clusters: int) -> torch.Tensor:
    """Return clusters with a sum of squares that is not larger, after as many passes as their cost permits.

    Moves of single images alternate with exchanges until neither reduces the sum. The clusters of very many images,
    such as the 60,502 × 11,316 of SOP's test set, are not refined: a pass costs as much as Lloyd's algorithm there.
    """
    passes = min(_BUDGET // (len(unit_ND) * clusters), _MOST_PASSES)
    best_N, best = clusters_N, -torch.inf
    if passes < _FEWEST_PASSES:
        return clusters_N
    while True:
        clusters_N, value, passes = _moved(unit_ND, clusters_N, clusters, passes)
        if value <= best * (1 + _GAIN):
            return best_N
        best_N, best = clusters_N, value
        exchanged_N = _exchanged(unit_ND, clusters_N, clusters) if passes > 0 else None
        if exchanged_N is None:
            return best_N
        clusters_N = exchanged_N


def _sums(unit_ND: torch.Tensor, clusters_N: torch.Tensor, clusters: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum [C, D] and the number of images [C] of each cluster in float64."""
    sums_CD = torch.zeros(clusters, unit_ND.shape[1], dtype=torch.float64, device=unit_ND.device)
    for rows_BD, cluster_B in zip(unit_ND.split(_ROWS), clusters_N.split(_ROWS), strict=True):
        sums_CD.index_add_(0, cluster_B, rows_BD.double())
    return sums_CD, clusters_N.bincount(minlength=clusters).double()


def _between(sums_CD: torch.Tensor, sizes_C: torch.Tensor) -> float:
    """Return Σ_c |Σ x|² / n_c: the sum of squares is Σ |x|² minus this."""
    return (sums_CD.square().sum(1) / sizes_C.clamp(min=1)).sum().item()


def _moved(
    unit_ND: torch.Tensor, clusters_N: torch.Tensor, clusters: int, passes: int
) -> tuple[torch.Tensor, float, int]:
    """Move images to other clusters while that reduces the sum of squares; return the passes that are left as well.

    Unlike Lloyd's algorithm this counts how the move of an image changes both centres (Hartigan 1975), which matters in
    clusters of few images. Moves are made together, the best half of them if all would not reduce the sum, and so on.
    """
    sums_CD, sizes_C = _sums(unit_ND, clusters_N, clusters)
    value, part = _between(sums_CD, sizes_C), 1.0
    costs = _MoveCosts(unit_ND)
    changed_C = torch.ones(clusters, dtype=torch.bool, device=unit_ND.device)
    while passes > 0:
        passes -= 1
        costs.update(clusters_N, sums_CD, sizes_C, changed_C)
        rows_R, targets_R = costs.gainful()
        count = len(rows_R)
        while count:
            count = max(int(count * part), 1)
            rows, targets = rows_R[:count], targets_R[:count]
            new_sums_CD, new_sizes_C = _after(unit_ND[rows].double(), clusters_N[rows], targets, sums_CD, sizes_C)
            if (new := _between(new_sums_CD, new_sizes_C)) > value:
                break
            if count == 1:
                return clusters_N, value, passes
            part = 0.5
        else:
            return clusters_N, value, passes
        changed_C = torch.zeros_like(changed_C)
        changed_C[clusters_N[rows]] = changed_C[targets] = True
        clusters_N = clusters_N.scatter(0, rows, targets)
        sums_CD, sizes_C, value, part = new_sums_CD, new_sizes_C, new, min(2 * count / len(rows_R), 1.0)
    return clusters_N, value, passes


def _after(
    moved_RD: torch.Tensor, from_R: torch.Tensor, to_R: torch.Tensor, sums_CD: torch.Tensor, sizes_C: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result of :func:`_sums` after images have moved."""
    ones_R = sizes_C.new_ones(len(moved_RD))
    return (
        sums_CD.index_add(0, from_R, moved_RD, alpha=-1).index_add_(0, to_R, moved_RD),
        sizes_C.index_add(0, from_R, ones_R, alpha=-1).index_add_(0, to_R, ones_R),
    )


class _MoveCosts:
    """What each image's move from its cluster would save, and what its move to the best other cluster would cost.

    The move of x from a to b changes the sum of squares by n_b/(n_b+1) |x − c_b|² − n_a/(n_a−1) |x − c_a|². Both terms
    are kept in float64, in steps of 1 / GRID; the cost is infinite where it exceeds what is saved. After the first
    pass few clusters change, so that most images are compared only with those.
    """

    def __init__(self, unit_ND: torch.Tensor) -> None:
        self._unit_ND = unit_ND
        self._saved_N = unit_ND.new_zeros(len(unit_ND), dtype=torch.float64)
        self._cost_N = torch.full_like(self._saved_N, torch.inf)
        self._target_N = torch.zeros_like(self._saved_N, dtype=torch.int64)

    def update(
        self, clusters_N: torch.Tensor, sums_CD: torch.Tensor, sizes_C: torch.Tensor, changed_C: torch.Tensor
    ) -> None:
        """Compute again what depends on the clusters ``changed_C``."""
        centres_CD = sums_CD / sizes_C.clamp(min=1)[:, None]
        own_N = changed_C[clusters_N]
        leaving_C = sizes_C / (sizes_C - 1).clamp(min=1) * (sizes_C > 1)
        for rows in own_N.nonzero().flatten().split(_ROWS):
            own_B = clusters_N[rows]
            distances_B = (self._unit_ND[rows] - centres_CD[own_B]).square().sum(1)
            self._saved_N[rows] = (distances_B * leaving_C[own_B] * GRID).round()
        stale_N = own_N | (changed_C[self._target_N] & self._cost_N.isfinite())
        self._cost_N[stale_N] = torch.inf
        filled_C = sizes_C > 0  # a move to an empty cluster is left to the exchanges
        self._compare(stale_N, clusters_N, filled_C, centres_CD, sizes_C)
        self._compare(~stale_N, clusters_N, filled_C & changed_C, centres_CD, sizes_C)

    def _compare(
        self,
        images_N: torch.Tensor,
        clusters_N: torch.Tensor,
        targets_C: torch.Tensor,
        centres_CD: torch.Tensor,
        sizes_C: torch.Tensor,
    ) -> None:
        """Compare the best target of some images with the clusters ``targets_C``."""
        target_F = targets_C.nonzero().flatten()
        joining_C = sizes_C / (sizes_C + 1)
        # |x − c|² = 1 − 2 x·c + |c|² for unit vectors, times n/(n+1): an inner product, largest for the best target
        halves_F1 = (1 + centres_CD[target_F].square().sum(1, keepdim=True)) / 2
        weighted_FD = joining_C[target_F, None] * torch.cat((centres_CD[target_F], -halves_F1), 1)
        gallery_FD = pad(weighted_FD.float(), (0, 3))
        for rows in images_N.nonzero().flatten().split(_ROWS) if len(target_F) else ():
            close_BK, found_BK = nearest(pad(self._unit_ND[rows], (0, 4), value=1), gallery_FD, min(3, len(target_F)))
            found_BK = target_F[found_BK]
            others_BK = (-2 * close_BK).masked_fill(found_BK == clusters_N[rows, None], torch.inf)
            near_B = others_BK.amin(1) < self._cost_N[rows].minimum(self._saved_N[rows]) / GRID + 4 * ROUNDING
            rows, found_BK = rows[near_B], found_BK[near_B].sort(1).values
            rows_BD = self._unit_ND[rows].double()
            costs_BK = torch.stack(
                [(rows_BD - centres_CD[found_B]).square().sum(1) * joining_C[found_B] for found_B in found_BK.T], 1
            )
            costs_BK = (costs_BK * GRID).round().masked_fill(found_BK == clusters_N[rows, None], torch.inf)
            cost_B, best_B = costs_BK.min(1)
            target_B = found_BK.gather(1, best_B[:, None])[:, 0]
            kept_B, kept_target_B = self._cost_N[rows], self._target_N[rows]
            better_B = (cost_B < kept_B) | ((cost_B == kept_B) & (target_B < kept_target_B))
            self._cost_N[rows] = torch.where(better_B, cost_B, kept_B)
            self._target_N[rows] = torch.where(better_B, target_B, kept_target_B)

    def gainful(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the images [R] whose move reduces the sum of squares, the best first, and their new clusters [R]."""
        gains_N = self._saved_N - self._cost_N
        order_N = gains_N.argsort(descending=True, stable=True)
        rows_R = order_N[gains_N[order_N] > 1]  # more than rounding
        return rows_R, self._target_N[rows_R]


def _exchanged(unit_ND: torch.Tensor, clusters_N: torch.Tensor, clusters: int) -> torch.Tensor | None:
    """Return clusters of which some are split and as many pairs merged, where that reduces the sum of squares.

    None if no exchange does. Each cluster takes part in one exchange at most, so that their effects add up.
    """
    sums_CD, sizes_C = _sums(unit_ND, clusters_N, clusters)
    gains_C, second_N = _halves(unit_ND, clusters_N, sums_CD / sizes_C.clamp(min=1)[:, None])
    costs_C, partners_C = _merges(sums_CD / sizes_C.clamp(min=1)[:, None], sizes_C)
    gains, costs, partners = gains_C.tolist(), costs_C.tolist(), partners_C.tolist()
    merges = iter([(costs[one], one, partners[one]) for one in costs_C.argsort(stable=True).tolist()])
    used: set[int] = set()
    first, second = list(range(clusters)), list(range(clusters))  # of each cluster's halves, the new clusters
    for split in gains_C.argsort(descending=True, stable=True).tolist():
        if split in used:
            continue
        found = next((merge for merge in merges if used.isdisjoint(merge[1:]) and split not in merge[1:]), None)
        if found is None or gains[split] <= found[0] + _GAIN:
            break
        _, one, other = found
        used |= {split, one, other}
        first[other] = second[other] = one
        second[split] = other
    if not used:
        return None
    first_C, second_C = (torch.tensor(new, device=unit_ND.device) for new in (first, second))
    return torch.where(second_N, second_C[clusters_N], first_C[clusters_N])


def _halves(
    unit_ND: torch.Tensor, clusters_N: torch.Tensor, centres_CD: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Split each cluster in two; return the gain of each [C], and which images are in the second half [N].

    The halves begin on both sides of the centre along the direction of most variance, by power iteration from the image
    farthest from the centre, and end after a few iterations of k-means.
    """
    clusters = len(centres_CD)
    offsets_ND = unit_ND.double() - centres_CD[clusters_N]
    order_N = (offsets_ND.square().sum(1) * GRID).round().argsort(stable=True)
    ranks_N = torch.empty_like(order_N).scatter_(0, order_N, torch.arange(len(order_N), device=order_N.device))
    farthest_C = torch.zeros_like(centres_CD[:, 0], dtype=torch.int64).scatter_reduce(0, clusters_N, ranks_N, "amax")
    directions_CD = offsets_ND[order_N[farthest_C]]
    for _ in range(_HALVING):
        directions_CD = unit(directions_CD)
        along_N1 = (offsets_ND * directions_CD[clusters_N]).sum(1, keepdim=True)
        directions_CD = torch.zeros_like(centres_CD).index_add_(0, clusters_N, along_N1 * offsets_ND)
    second_N = (offsets_ND * directions_CD[clusters_N]).sum(1) > 0
    for _ in range(_HALVING):
        sums_HD, sizes_H = _sums(offsets_ND, 2 * clusters_N + second_N, 2 * clusters)
        means_HD = sums_HD / sizes_H.clamp(min=1)[:, None]
        first_N, last_N = ((offsets_ND - means_HD[2 * clusters_N + half]).square().sum(1) for half in (0, 1))
        second_N = last_N < first_N
    sums_HD, sizes_H = _sums(offsets_ND, 2 * clusters_N + second_N, 2 * clusters)
    return (sums_HD.square().sum(1) / sizes_H.clamp(min=1)).view(clusters, 2).sum(1), second_N


def _merges(centres_CD: torch.Tensor, sizes_C: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cheapest merge of each cluster: its increase of the sum of squares [C], and the partner [C] (Ward)."""
    costs, partners = [], []
    squares_C = centres_CD.square().sum(1)
    for rows_R in torch.arange(len(centres_CD), device=centres_CD.device).split(_ROWS // 16):
        distances_RC = squares_C[rows_R, None] - 2 * centres_CD[rows_R] @ centres_CD.T + squares_C
        weights_RC = sizes_C[rows_R, None] * sizes_C / (sizes_C[rows_R, None] + sizes_C).clamp(min=1)
        costs_RC = (distances_RC.clamp(min=0) * weights_RC * GRID).round()
        costs_RC[torch.arange(len(rows_R), device=rows_R.device), rows_R] = torch.inf
        costs.append(costs_RC.amin(1) / GRID)
        partners.append(costs_RC.argmin(1))
    return torch.cat(costs), torch.cat(partners)


def clustering_metrics(embeddings_ND: torch.Tensor, labels_N: torch.Tensor, *, seed: int = 0) -> dict[str, float]:
    """Compute ``nmi`` and pairwise ``f1`` (Song et al. 2016) of k-means on the unit vectors.

    Example: classes aabb, clusters 1112: nmi = .344, f1 = 2·(1/3)(1/2)/(1/3 + 1/2) = .4.

    Raises:
        InvalidInput: no embeddings, not finite, or labels of another number.
    """
    return agreement(labels_N, clusters_of(embeddings_ND, labels_N, seed=seed))


def superclass_agreement(superclasses_N: torch.Tensor, clusters_N: torch.Tensor) -> dict[str, float]:
    """Compute ``nmi_super`` and ``f1_super``, the agreement of superclasses with as many clusters."""
    return {f"{name}_super": value for name, value in agreement(superclasses_N, clusters_N).items()}


def clusters_of(embeddings_ND: torch.Tensor, labels_N: torch.Tensor, *, seed: int = 0) -> torch.Tensor:
    """Compute the cluster of each image, int64 [N] on the labels' device, with as many clusters as classes.

    Raises:
        InvalidInput: no embeddings, not finite, or labels of another number.
    """
    embeddings_ND, _ = checked(embeddings_ND, labels_N)
    unit_ND = unit(embeddings_ND.double()).float()
    return kmeans(unit_ND, len(labels_N.unique()), seed=seed).to(labels_N.device)


def agreement(labels_N: torch.Tensor, clusters_N: torch.Tensor) -> dict[str, float]:
    """Compute ``nmi`` and ``f1`` of two partitions of the same images, given by any integer labels."""
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


def distance_metrics(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> dict[str, float]:
    """Compute ``dists_intra``, ``dists_inter`` and ``dists_ratio`` (Roth et al. 2020); NaN without a pair to compare.

    Example: unit vectors at 0° and 90° of class a and at 180° of class b: intra = 1 − cos 90° = 1, inter =
    1 − cos 135° = 1.707.

    Raises:
        InvalidInput: no embeddings, not finite, or labels of another number.
    """
    return distances_of(*class_distances(embeddings_ND, labels_N))


_EQUAL = 1e-12
"""The distance of classes, up to rounding errors, whose embeddings are all equal."""


def distances_of(intra_C: torch.Tensor, inter_C: torch.Tensor) -> dict[str, float]:
    """Compute the metrics from the result of :func:`class_distances`."""
    within, between = intra_C[~intra_C.isnan()].mean().item(), inter_C.mean().item()
    ratio = within / between if between > _EQUAL else float("nan")
    return {"dists_intra": within, "dists_inter": between, "dists_ratio": ratio}


def class_distances(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the mean cosine distance within each class, and from its mean to the other classes' means: float64 [C].

    The first is NaN for a class of one image, the second if there is only one class.

    Raises:
        InvalidInput: no embeddings, not finite, or labels of another number.
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
