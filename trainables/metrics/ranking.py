"""Exact ranking of a gallery for every query, and checks of a metric's input.

Shapes: N images of the gallery (the first of them are the queries), D embedding, Q queries of a block, K ranks,
M pairs, R positives of a query, G groups of duplicates.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import torch

from trainables.metrics.table import superclass_metrics
from trainables.mistakes import Mistakes, raise_if_any


def checked(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the embeddings detached, and the labels on their device.

    Raises:
        Mistakes: no embeddings, not finite, or labels of another number.
    """
    mistakes = []
    if embeddings_ND.ndim != 2 or 0 in embeddings_ND.shape:
        mistakes.append(
            f"Embeddings must be N rows of D numbers, not of shape {tuple(embeddings_ND.shape)}:"
            " give at least one image."
        )
    elif not embeddings_ND.isfinite().all():
        rows = int((~embeddings_ND.isfinite()).any(1).sum())
        mistakes.append(f"{rows} of {len(embeddings_ND)} embeddings are not finite: the training diverged.")
    if labels_N.shape != embeddings_ND.shape[:1]:
        mistakes.append(
            f"Labels must be one per embedding; they have shape {tuple(labels_N.shape)} and the embeddings"
            f" {tuple(embeddings_ND.shape)}: give {len(embeddings_ND)}."
        )
    raise_if_any(mistakes)
    return embeddings_ND.detach(), labels_N.to(embeddings_ND.device)


def checked_superclasses(names: Sequence[str], superclasses_N: torch.Tensor | None) -> torch.Tensor:
    """Return the superclass of each image, on the CPU.

    Raises:
        Mistakes: ``superclasses_N`` is None.
    """
    if superclasses_N is None:
        raise Mistakes(
            f"{', '.join(superclass_metrics(names))} compares clusters with superclasses, and there are none: give the"
            " superclass of each image."
        )
    return superclasses_N.cpu()


# Approximate search: the most similar rows in float32.

ROUNDING = 4e-6
"""Float32 similarities of unit vectors that differ by more than this are in their true order."""

GRID = 2.0**40
"""Float64 similarities are rounded to steps of 2⁻⁴⁰, far above rounding errors, so that ties are exact."""

_BLOCK_BYTES = 2**28


def faiss_for(device: torch.device) -> ModuleType | None:
    """Return faiss, with torch's number of threads, if it should search on ``device``; None if torch should.

    On a CPU faiss is faster; it may be missing on a machine that only trains. On a GPU torch searches, which is always
    installed; ``make bench-gpu`` times both.
    """
    if device.type != "cpu":
        return None
    try:
        import faiss  # late: only a process that searches needs it
    except ModuleNotFoundError:
        return None
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


def nearest(queries_QD: torch.Tensor, gallery_ND: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest inner products of each query and their gallery rows, both [Q, K], largest first.

    Inputs are float32 on one device. Products closer than :data:`ROUNDING` are in any order.
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
    """Disable TF32 in matrix products and convolutions, whatever the training allows.

    TF32, which torch allows for convolutions by default, has a mantissa of ten bits and would reorder neighbours.
    """
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


# Exact ranking.

_INDICES = 2**20
"""Limit of an index, so that it fits with 41 bits of similarity into a key of 64 bits."""

_LAST = torch.iinfo(torch.int64).min
"""A key below all others."""

_COUNTED = 16
"""Most positives per query for which counting their ranks beats sorting (.08 ms each, 1.8 ms to sort 60,000)."""

_SPARE = 8
"""Additional candidates, which resolve nearly all ties at the last rank."""

_BLOCK_QUERIES = 8192
_BLOCK_RANKS = 2**23


class Gallery:
    """N labelled embeddings, each ranked against all others by cosine similarity in float64, ties by index.

    A float32 search finds the candidates. If two are closer than its rounding and only one of them is relevant, their
    similarities are recomputed in float64, so that no block size, thread or device can change a score. A query is
    excluded from its ranking by index, so a duplicate of it is not.
    """

    def __init__(self, embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> None:
        self._raw_ND = embeddings_ND
        self.labels_N = labels_N
        self._unit_ND = torch.nn.functional.normalize(embeddings_ND.double()).float().contiguous()
        self._exact: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def __len__(self) -> int:
        return len(self.labels_N)

    def relevance(self, depth: int, queries: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks of the first ``queries`` images: indices [Q], and relevance of their K = depth nearest [Q, K].

        Ranks beyond the size of the gallery are not relevant.
        """
        ranks = min(depth, len(self) - 1)
        block = max(min(_BLOCK_QUERIES, _BLOCK_RANKS // depth), 1)
        for queries_Q in torch.arange(queries, device=self.labels_N.device).split(block):
            relevant_QK = self._relevance(queries_Q, ranks)
            yield queries_Q, torch.nn.functional.pad(relevant_QK, (0, depth - ranks))

    def neighbours(self, queries_Q: torch.Tensor, k: int) -> torch.Tensor:
        """Return the indices of the k nearest of some queries, int64 [Q, K]; K is below k in a smaller gallery."""
        ranks = min(k, len(self) - 1)
        parts = [self._neighbours(block_Q, ranks) for block_Q in queries_Q.split(_BLOCK_QUERIES)]
        return torch.cat(parts) if parts else queries_Q.new_zeros((0, ranks))

    def whole_relevance(self, queries_Q: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks as :meth:`relevance`, for some queries and all ranks."""
        for block_Q in queries_Q.split(max(_BLOCK_RANKS // len(self), 1)):
            yield block_Q, self._full_relevance(block_Q, len(self) - 1)

    def _neighbours(self, queries_Q: torch.Tensor, ranks: int) -> torch.Tensor:
        candidates = ranks + 1 + _SPARE
        if 2 * candidates >= len(self):
            return self._full_neighbours(queries_Q, ranks)
        similarities_QK, rows_QK = nearest(self._unit_ND[queries_Q], self._unit_ND, candidates)
        open_Q = similarities_QK[:, ranks] - similarities_QK[:, -1] <= ROUNDING
        exact_QK = self._exact_pairs(queries_Q.repeat_interleave(candidates), rows_QK.flatten()).view(rows_QK.shape)
        keys_QK = self._keys(exact_QK, rows_QK).masked_fill(rows_QK == queries_Q[:, None], _LAST)
        nearest_QK = rows_QK.gather(1, keys_QK.topk(ranks).indices)
        if open_Q.any():
            nearest_QK[open_Q] = self._full_neighbours(queries_Q[open_Q], ranks)
        return nearest_QK

    def _full_neighbours(self, queries_Q: torch.Tensor, ranks: int) -> torch.Tensor:
        return torch.cat([keys_QN.topk(ranks).indices for _, keys_QN in self._full_keys(queries_Q)])

    def _relevance(self, queries_Q: torch.Tensor, ranks: int) -> torch.Tensor:
        candidates = ranks + 1 + _SPARE
        if 2 * candidates >= len(self):
            return self._full_relevance(queries_Q, ranks)
        similarities_QK, rows_QK = nearest(self._unit_ND[queries_Q], self._unit_ND, candidates)
        # images beyond the candidates may tie with the last rank, in column `ranks` because of the query itself
        open_Q = similarities_QK[:, ranks] - similarities_QK[:, -1] <= ROUNDING
        similarities_QK = similarities_QK.masked_fill(rows_QK == queries_Q[:, None], -torch.inf)
        similarities_QK, order_QK = similarities_QK.sort(descending=True)
        rows_QK = rows_QK.gather(1, order_QK)
        relevant_QK = self._settled(queries_Q, similarities_QK, rows_QK)[:, :ranks]
        if open_Q.any():
            relevant_QK[open_Q] = self._full_relevance(queries_Q[open_Q], ranks)
        return relevant_QK

    def _settled(self, queries_Q: torch.Tensor, similarities_QK: torch.Tensor, rows_QK: torch.Tensor) -> torch.Tensor:
        """Return relevance in the exact order, from candidates in the order of float32."""
        relevant_QK = self.labels_N[rows_QK] == self.labels_N[queries_Q][:, None]
        close_QK = similarities_QK[:, :-1] - similarities_QK[:, 1:] <= ROUNDING
        run_QK = torch.nn.functional.pad((~close_QK).cumsum(1), (1, 0))
        # order matters only within runs of near ties that are partly relevant
        length_QK = torch.zeros_like(run_QK).scatter_add_(1, run_QK, torch.ones_like(run_QK))
        hits_QK = torch.zeros_like(run_QK).scatter_add_(1, run_QK, relevant_QK.long())
        mixed_QK = ((hits_QK > 0) & (hits_QK < length_QK)).gather(1, run_QK)
        for row in mixed_QK.any(1).nonzero().flatten().split(1024):
            relevant_QK[row] = self._resorted(queries_Q[row], run_QK[row], rows_QK[row], mixed_QK[row])
        return relevant_QK

    def _resorted(
        self, queries_Q: torch.Tensor, run_QK: torch.Tensor, rows_QK: torch.Tensor, mixed_QK: torch.Tensor
    ) -> torch.Tensor:
        """Return relevance sorted by run, within mixed runs by exact similarity, then by index."""
        query_M, column_M = mixed_QK.nonzero(as_tuple=True)
        exact_QK = torch.zeros(rows_QK.shape, dtype=torch.float64, device=rows_QK.device)
        exact_QK[query_M, column_M] = self._exact_pairs(queries_Q[query_M], rows_QK[query_M, column_M])
        rows_QK, order_QK = rows_QK.sort()
        for key_QK, descending in ((exact_QK, True), (run_QK, False)):
            step_QK = key_QK.gather(1, order_QK).sort(descending=descending, stable=True).indices
            order_QK = order_QK.gather(1, step_QK)
            rows_QK = rows_QK.gather(1, step_QK)
        return self.labels_N[rows_QK] == self.labels_N[queries_Q][:, None]

    def _exact_pairs(self, left_M: torch.Tensor, right_M: torch.Tensor) -> torch.Tensor:
        parts = []
        for left, right in zip(left_M.split(4096), right_M.split(4096), strict=True):
            left_MD, right_MD = self._unit64(self._raw_ND[left]), self._unit64(self._raw_ND[right])
            parts.append((left_MD * right_MD).sum(1))
        return (torch.cat(parts) * GRID).round()

    @staticmethod
    def _unit64(raw: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(raw.double())

    def _full_relevance(self, queries_Q: torch.Tensor, ranks: int) -> torch.Tensor:
        """Return relevance of the first ranks, from all similarities in float64."""
        parts = []
        for queries, keys_QN in self._full_keys(queries_Q):
            parts.append(_relevance_of_keys(keys_QN, self.labels_N == self.labels_N[queries][:, None])[:, :ranks])
        return torch.cat(parts)

    def _full_keys(self, queries_Q: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks of queries with the :meth:`_keys` of all images; a query's own is ``_LAST``."""
        if self._exact is None:
            self._exact = self._unit64(self._raw_ND), _first_of_duplicates(self._raw_ND)
        unit_ND, first_N = self._exact
        rows_N = torch.arange(len(self), device=self.labels_N.device)
        for queries in queries_Q.split(max(_BLOCK_BYTES // (8 * len(self)), 1)):
            exact_QN = (unit_ND[queries] @ unit_ND.T * GRID).round()
            if first_N is not None:
                exact_QN = exact_QN[:, first_N]
            yield queries, self._keys(exact_QN, rows_N).scatter_(1, queries[:, None], _LAST)

    def _keys(self, exact_QK: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Combine rounded similarity and index into one integer, the largest of which ranks first."""
        assert len(self) < _INDICES
        return exact_QK.long() * _INDICES + (len(self) - 1 - rows)


def _relevance_of_keys(keys_QN: torch.Tensor, same_QN: torch.Tensor) -> torch.Tensor:
    """Return relevance [Q, N] by descending key; keys are distinct, and the query's own is the smallest."""
    most = int(same_QN.sum(1).max()) - 1
    if most > _COUNTED:
        return same_QN.gather(1, keys_QN.sort(descending=True).indices)
    # for few positives counting their ranks is faster than sorting; missing ones get the query's own last rank
    positive_QR = keys_QN.masked_fill(~same_QN, _LAST).topk(most).values
    relevant_QN = torch.zeros_like(same_QN)
    for rank in range(most):
        ahead_Q1 = (keys_QN > positive_QR[:, rank, None]).sum(1, keepdim=True, dtype=torch.int32)
        relevant_QN.scatter_(1, ahead_Q1.long(), True)
    return relevant_QN


def _first_of_duplicates(raw_ND: torch.Tensor) -> torch.Tensor | None:
    """Return the first equal row of each row, or None if all are distinct.

    A matrix product may round equal rows differently, depending on their position.
    """
    _, group_N = raw_ND.unique(dim=0, return_inverse=True)
    groups = int(group_N.max()) + 1
    if groups == len(raw_ND):
        return None
    numbers_N = torch.arange(len(raw_ND), device=raw_ND.device)
    first_G = numbers_N.new_full((groups,), len(raw_ND)).scatter_reduce(0, group_N, numbers_N, "amin")
    return first_G[group_N]
