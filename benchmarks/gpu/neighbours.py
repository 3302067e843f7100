"""Neighbours and k-means at the size of SOP's test set: torch compared to faiss, on the device and on a CPU.

Shapes: N images, D embedding.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.gpu.sizes import Sizes
from benchmarks.timing import machine, medians
from trainables.metrics import evaluate
from trainables.metrics.clustering import agreement, kmeans
from trainables.metrics.ranking import _nearest_by_torch, nearest

K = 11
CPU = torch.device("cpu")


def _knn_gpu(unit_ND: Tensor) -> object:
    import faiss
    import faiss.contrib.torch_utils

    resources = faiss.StandardGpuResources()
    return faiss.knn_gpu(resources, unit_ND, unit_ND, K, metric=faiss.METRIC_INNER_PRODUCT)


def faiss_kmeans(unit_ND: Tensor, clusters: int, *, gpu: bool) -> Tensor:
    """Run faiss's own loop: 25 iterations, splitting another cluster when one becomes empty."""
    import faiss

    start = torch.randperm(len(unit_ND), generator=torch.Generator().manual_seed(0))[:clusters]
    rows = unit_ND.cpu().numpy()
    search: Any = faiss.Kmeans(
        rows.shape[1], clusters, niter=25, min_points_per_centroid=1, max_points_per_centroid=len(rows), gpu=gpu
    )
    search.train(rows, init_centroids=rows[start.numpy()])
    return torch.from_numpy(search.index.search(rows, 1)[1][:, 0])


def _faiss() -> tuple[bool, bool]:
    """Return whether faiss is installed, and whether it has a GPU."""
    if not importlib.util.find_spec("faiss"):
        return False, False
    import faiss

    return True, faiss.get_num_gpus() > 0


def drawn(images: int, clusters: int, dimensions: int) -> tuple[Tensor, Tensor]:
    """Return labels [N], and embeddings [N, D] of noise around one centre per label."""
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(images) % clusters
    centres = torch.randn(clusters, dimensions, generator=generator)
    return labels_N, centres[labels_N] + 1.5 * torch.randn(images, dimensions, generator=generator)


def neighbours(console: Console, sizes: Sizes, device: torch.device) -> None:
    """Print one row per implementation: seconds, and the result of k-means."""
    labels_N, embeddings_ND = drawn(sizes.gallery, sizes.clusters, sizes.dimensions)
    embeddings_ND = embeddings_ND.to(device)
    unit_ND = torch.nn.functional.normalize(embeddings_ND)
    there, on_gpu = _faiss()
    ways: dict[str, Callable[[], object]] = {
        "neighbours as the metrics search them": lambda: nearest(unit_ND, unit_ND, K),
        "neighbours by torch": lambda: _nearest_by_torch(unit_ND, unit_ND, K),
        "all metrics of 8 ranks": lambda: evaluate(embeddings_ND, labels_N, ["recall_at_8", "map_at_r", "r_precision"]),
    }
    if on_gpu:
        ways["neighbours by faiss.knn_gpu"] = lambda: _knn_gpu(unit_ND)
    clusterings: dict[str, Callable[[], Tensor]] = {
        "k-means as the metrics do it": lambda: kmeans(unit_ND, sizes.clusters, seed=0).cpu()
    }
    if there:
        clusterings[f"faiss.Kmeans(gpu={on_gpu})"] = lambda: faiss_kmeans(unit_ND, sizes.clusters, gpu=on_gpu)
    table = Table(title=f"{sizes.gallery:,} × {sizes.dimensions}, {sizes.clusters:,} clusters; {machine(device)}")
    for column in ("what", "s", "NMI"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, way in ways.items():
        table.add_row(name, f"{medians([way], device=device, seconds=0, repeats=3)[0]:.3f}", "")
    for name, clustering in clusterings.items():
        (took,) = medians([clustering], device=device, seconds=0, repeats=1)
        table.add_row(name, f"{took:.3f}", f"{agreement(labels_N, clustering())['nmi']:.4f}")
    console.print(table)
