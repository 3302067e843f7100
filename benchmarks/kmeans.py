"""k-means at the size of SOP's test set, compared to faiss's own loop: python -m benchmarks.kmeans [N] [clusters]

With a folder of images instead, python -m benchmarks.kmeans FOLDER compares the agreement with the classes to that of
faiss.Kmeans and scikit-learn (k-means++, ten starts), on ten drawn sets of sixty classes and on the folder's training
classes, of which each image is 16 × 16 grey values.

Both use as many threads as torch. CPU seconds are summed over threads; on a shared machine they are more reliable than
wall time.

Shapes: N images, D embedding.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans
from torch import Tensor

from benchmarks.timing import machine
from trainables.metrics.evaluation import agreement, kmeans

D = 512


def main(images: int = 60_502, clusters: int = 11_316) -> None:
    """Print one row per implementation."""
    labels_N, embeddings_ND = drawn(images, clusters, D)
    unit_ND = torch.nn.functional.normalize(embeddings_ND)
    ways: dict[str, Callable[[], Tensor]] = {
        "as the metrics do it": lambda: kmeans(unit_ND, clusters, seed=0),
        "faiss.Kmeans": lambda: faiss_kmeans(unit_ND, clusters),
    }
    table = Table(title=f"{images:,} × {D}, {clusters:,} clusters; {machine(torch.device('cpu'))}")
    for column in ("k-means", "s", "s of computing", "NMI"):
        table.add_column(column, justify="left" if column == "k-means" else "right")
    for name, way in ways.items():
        begin, computing = time.perf_counter(), time.process_time()
        found_N = way()
        took, computed = time.perf_counter() - begin, time.process_time() - computing
        table.add_row(name, f"{took:.1f}", f"{computed:.1f}", f"{agreement(labels_N, found_N)['nmi']:.4f}")
    Console(width=100).print(table)


def drawn(images: int, clusters: int, dimensions: int) -> tuple[Tensor, Tensor]:
    """Return labels [N], and embeddings [N, D] of noise around one centre per label."""
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(images) % clusters
    centres = torch.randn(clusters, dimensions, generator=generator)
    return labels_N, centres[labels_N] + 1.5 * torch.randn(images, dimensions, generator=generator)


def faiss_kmeans(unit_ND: Tensor, clusters: int) -> Tensor:
    """Run faiss's own loop: 25 iterations, splitting another cluster when one becomes empty."""
    import faiss

    start = torch.randperm(len(unit_ND), generator=torch.Generator().manual_seed(0))[:clusters]
    rows = unit_ND.numpy()
    search = faiss.Kmeans(
        rows.shape[1], clusters, niter=25, min_points_per_centroid=1, max_points_per_centroid=len(rows)
    )
    search.train(rows, init_centroids=rows[start.numpy()])
    return torch.from_numpy(search.index.search(rows, 1)[1][:, 0])


def photographs(folder: str) -> tuple[Tensor, Tensor]:
    """Return the classes [N] and centred grey values [N, D] of the images of the training classes."""
    names = sorted(path.name for path in Path(folder).iterdir())
    paths = [
        (label, path) for label, name in enumerate(names[: len(names) // 2]) for path in Path(folder, name).iterdir()
    ]
    grey_ND = np.stack([np.asarray(Image.open(path).convert("L").resize((16, 16))).ravel() for _, path in paths])
    values_ND = torch.from_numpy(grey_ND).float()
    return torch.tensor([label for label, _ in paths]), values_ND - values_ND.mean(0)


def agreements(folder: str) -> None:
    """Print one row per set: NMI and F1 of the metrics, by faiss, and by scikit-learn."""
    sets = {f"drawn {seed}": sixty(seed) for seed in range(10)} | {folder: photographs(folder)}
    table = Table(title="NMI and F1, in per cent")
    for column in ("set", "as the metrics do it", "faiss.Kmeans", "scikit-learn"):
        table.add_column(column, justify="left" if column == "set" else "right")
    for name, (labels_N, embeddings_ND) in sets.items():
        unit_ND = torch.nn.functional.normalize(embeddings_ND)
        clusters = len(labels_N.unique())
        theirs_N = KMeans(clusters, n_init=10, random_state=0).fit(unit_ND.numpy()).labels_
        found = (kmeans(unit_ND, clusters, seed=0), faiss_kmeans(unit_ND, clusters), torch.from_numpy(theirs_N).long())
        scores = [agreement(labels_N, found_N) for found_N in found]
        table.add_row(name, *(f"{100 * score['nmi']:.1f}, {100 * score['f1']:.1f}" for score in scores))
    Console(width=120).print(table)


def sixty(seed: int) -> tuple[Tensor, Tensor]:
    """Return labels [N], and embeddings [N, D] of noise around sixty centres; the noise grows with the seed."""
    generator = torch.Generator().manual_seed(seed)
    labels_N = torch.arange(1200) % 60
    noise_ND = torch.randn(1200, 64, generator=generator)
    return labels_N, torch.randn(60, 64, generator=generator)[labels_N] + (0.8 + seed / 10) * noise_ND


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].isdecimal():
        agreements(sys.argv[1])
    else:
        main(*(int(argument) for argument in sys.argv[1:]))
