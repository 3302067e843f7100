"""The bare search for the most similar rows, on the device where they lie.

Shapes: N gallery, D embedding, Q queries, K nearest.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

ROUNDING = 4e-6
"""Two float32 similarities of unit vectors farther apart than this are in their true order."""

GRID = 2.0**40
"""Similarities in float64 are compared in steps of 2⁻⁴⁰, far above its rounding, so that ties are ties."""

_BLOCK_BYTES = 2**28


def faiss_for(device: torch.device) -> ModuleType | None:
    """faiss where it searches among rows on ``device``; None where torch does.

    On a CPU faiss is the faster one, and is missing only on a machine that does nothing but train. It takes as many
    threads as torch was given. On a GPU torch searches, which is always there; ``make bench-gpu`` times both.
    """
    if device.type != "cpu":
        return None
    try:
        import faiss  # by the first search of a process
    except ModuleNotFoundError:
        return None
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


def nearest(queries_QD: torch.Tensor, gallery_ND: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest inner products of each query and their gallery rows, both [Q, K], largest first.

    All float32 and on one device. What is no farther apart than :data:`ROUNDING` comes in any order.
    """
    if faiss := faiss_for(gallery_ND.device):
        index = faiss.IndexFlatIP(gallery_ND.shape[1])
        index.add(gallery_ND.numpy())
        similarities_QK, rows_QK = index.search(queries_QD.numpy(), k)
        return torch.from_numpy(similarities_QK), torch.from_numpy(rows_QK)
    return _nearest_by_torch(queries_QD, gallery_ND, k)


def _nearest_by_torch(queries_QD: torch.Tensor, gallery_ND: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    block = max(_BLOCK_BYTES // (4 * len(gallery_ND)), 1)
    with full_float32():
        parts = [(part_QD @ gallery_ND.T).topk(k) for part_QD in queries_QD.split(block)]
    return torch.cat([values for values, _ in parts]), torch.cat([rows for _, rows in parts])


@contextmanager
def full_float32() -> Iterator[None]:
    """Matrix products and convolutions in full float32, whatever the training allows.

    A GPU's TF32, which torch allows for convolutions unless told otherwise, has ten bits: it would reorder neighbours.
    """
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
