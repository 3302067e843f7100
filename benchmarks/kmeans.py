"""k-means at the size of SOP's test set, compared to faiss's own loop: python -m benchmarks.kmeans [N] [clusters]

Both use as many threads as torch. CPU seconds are summed over threads; on a shared machine they are more reliable than
wall time.

Shapes: N images, D embedding.
"""

import sys
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.gpu.neighbours import drawn, faiss_kmeans
from benchmarks.timing import machine
from trainables.metrics.clustering import agreement, kmeans

D = 512


def main(images: int = 60_502, clusters: int = 11_316) -> None:
    """Print one row per implementation."""
    labels_N, embeddings_ND = drawn(images, clusters, D)
    unit_ND = torch.nn.functional.normalize(embeddings_ND)
    ways: dict[str, Callable[[], Tensor]] = {
        "as the metrics do it": lambda: kmeans(unit_ND, clusters, seed=0),
        "faiss.Kmeans": lambda: faiss_kmeans(unit_ND, clusters, gpu=False),
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


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
