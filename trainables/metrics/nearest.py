"""The bare search for the most similar rows, by faiss where there is faiss and by torch everywhere else.

Shapes: N gallery, D embedding, Q queries, K nearest.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

_BLOCK_BYTES = 2**28


def faiss_if_there() -> ModuleType | None:
    """faiss, imported by the first search of a process; None on a machine that only trains."""
    try:
        import faiss
    except ModuleNotFoundError:
        return None
    return faiss


def nearest(queries_QD: torch.Tensor, gallery_ND: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest inner products of each query and their gallery rows, both [Q, K], largest first.

    All float32 and on one device. Near ties come in any order.
    """
    if gallery_ND.device.type == "cpu" and (faiss := faiss_if_there()):
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
    """Matrix products in full float32, whatever the training allows: TF32 would reorder neighbours."""
    allowed = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(allowed)
