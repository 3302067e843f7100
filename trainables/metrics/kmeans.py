"""k-means from a seeded choice of images: the same clusters on every device, with faiss and without.

A search in float32 finds the nearest centre. Where a second one is no farther but for its rounding, all are compared
again in float64, so that no device, thread or block size can change a cluster.

Shapes: N images, D embedding, C clusters, R images that are assigned again.
"""

import torch
from torch.nn.functional import pad

from trainables.metrics.nearest import GRID, ROUNDING, nearest

_ITERATIONS = 25  # faiss's own default

_BLOCK_NUMBERS = 2**25


def kmeans(unit_ND: torch.Tensor, clusters: int, *, seed: int) -> torch.Tensor:
    """The cluster of each image [N], after 25 iterations of Lloyd's or when no image changes its cluster any more.

    A cluster that has lost all its images stays where it was.
    """
    start_C = torch.randperm(len(unit_ND), generator=torch.Generator().manual_seed(seed))[:clusters]
    centres_CD = unit_ND[start_C.to(unit_ND.device)].double()
    moved_C = torch.ones(clusters, dtype=torch.bool, device=unit_ND.device)
    clusters_N = torch.zeros(len(unit_ND), dtype=torch.int64, device=unit_ND.device)
    for iteration in range(_ITERATIONS):
        before_N, clusters_N = clusters_N, _assigned(unit_ND, centres_CD, clusters_N, moved_C)
        if iteration:
            changed_N = clusters_N != before_N
            moved_C = torch.zeros_like(moved_C)
            moved_C[clusters_N[changed_N]] = moved_C[before_N[changed_N]] = True
        if not moved_C.any():
            return clusters_N
        centres_CD = torch.where(moved_C[:, None], _means(unit_ND, clusters_N, centres_CD), centres_CD)
    return _assigned(unit_ND, centres_CD, clusters_N, moved_C)


def _means(unit_ND: torch.Tensor, clusters_N: torch.Tensor, centres_CD: torch.Tensor) -> torch.Tensor:
    sizes_C1 = clusters_N.bincount(minlength=len(centres_CD))[:, None]
    sums_CD = torch.zeros_like(centres_CD).index_add_(0, clusters_N, unit_ND.double())
    return torch.where(sizes_C1 > 0, sums_CD / sizes_C1.clamp(min=1), centres_CD)


def _assigned(
    unit_ND: torch.Tensor, centres_CD: torch.Tensor, clusters_N: torch.Tensor, moved_C: torch.Tensor
) -> torch.Tensor:
    """The nearest centre of each image, where ``clusters_N`` were nearest before the centres ``moved_C`` moved.

    An image whose centre stayed only asks those that moved: it was nearer than the others before. After some
    iterations few move, so that all together cost about four passes and not 26.
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
    """The nearest centre [R], of equally near ones the first."""
    closeness_R2, found_R2 = nearest(*_with_norm(unit_RD, centres_CD), min(2, len(centres_CD)))
    nearest_R = found_R2[:, 0].clone()
    close_R = (closeness_R2[:, 0] - closeness_R2[:, -1] <= ROUNDING).nonzero().flatten()
    half_norms_C = centres_CD.square().sum(1) / 2
    for rows in close_R.split(max(_BLOCK_NUMBERS // len(centres_CD), 1)):
        exact_RC = unit_RD[rows].double() @ centres_CD.T - half_norms_C
        nearest_R[rows] = (exact_RC * GRID).round().argmax(1)
    return nearest_R


def _with_norm(unit_RD: torch.Tensor, centres_CD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 rows whose inner products are x·c − |c|²/2, which is largest for the nearest centre.

    They have four columns more, three of them zero: a GPU multiplies rows of an odd length more slowly.
    """
    half_norms_C1 = centres_CD.square().sum(1, keepdim=True) / 2
    return pad(unit_RD, (0, 4), value=1), pad(torch.cat((centres_CD, -half_norms_C1), 1).float(), (0, 3))
