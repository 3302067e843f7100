"""k-means from a seeded choice of images, by faiss where there is faiss and by torch everywhere else.

Shapes: N images, D embedding, C clusters.
"""

import torch

from trainables.metrics.nearest import faiss_if_there, full_float32

_ITERATIONS = 25  # faiss's own default


def kmeans(unit_ND: torch.Tensor, clusters: int, *, seed: int) -> torch.Tensor:
    """The cluster of each image [N], after 25 iterations of Lloyd's."""
    start = torch.randperm(len(unit_ND), generator=torch.Generator().manual_seed(seed))[:clusters]
    centres_CD = unit_ND[start.to(unit_ND.device)]
    faiss = faiss_if_there() if unit_ND.device.type == "cpu" else None
    if faiss is None:
        return _lloyd(unit_ND, centres_CD)
    # faiss would draw a sample of the images and warn of small clusters by default
    search = faiss.Kmeans(
        unit_ND.shape[1],
        clusters,
        niter=_ITERATIONS,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=len(unit_ND),
    )
    search.train(unit_ND.numpy(), init_centroids=centres_CD.numpy())
    return torch.from_numpy(search.index.search(unit_ND.numpy(), 1)[1][:, 0])


def _lloyd(unit_ND: torch.Tensor, centres_CD: torch.Tensor) -> torch.Tensor:
    for _ in range(_ITERATIONS):
        clusters_N = _assigned(unit_ND, centres_CD)
        sizes_C = clusters_N.bincount(minlength=len(centres_CD))
        sums_CD = torch.zeros_like(centres_CD).index_add_(0, clusters_N, unit_ND)
        # a cluster that has lost all its images stays where it was
        centres_CD = torch.where(sizes_C[:, None] > 0, sums_CD / sizes_C[:, None].clamp(min=1), centres_CD)
    return _assigned(unit_ND, centres_CD)


def _assigned(unit_ND: torch.Tensor, centres_CD: torch.Tensor) -> torch.Tensor:
    half_norms_C = centres_CD.square().sum(1) / 2
    with full_float32():
        return torch.cat([(rows @ centres_CD.T - half_norms_C).argmax(1) for rows in unit_ND.split(8192)])
