"""The exact ranking of a gallery for every query, and the checks of embeddings."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import torch

from trainables.metrics.table import superclass_metrics
from trainables.mistakes import Mistakes, raise_if_any

# What every metric asks of its input.
#
# Shapes: N images, D embedding.


def checked(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings detached and the labels beside them, on one device.

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
            f"Labels must be one an embedding, not of shape {tuple(labels_N.shape)} beside"
            f" {tuple(embeddings_ND.shape)}: give {len(embeddings_ND)}."
        )
    raise_if_any(mistakes)
    return embeddings_ND.detach(), labels_N.to(embeddings_ND.device)


def checked_superclasses(names: Sequence[str], superclasses_N: torch.Tensor | None) -> torch.Tensor:
    """The superclass of each image, on the CPU, for those of the metrics ``names`` that need it.

    Raises:
        Mistakes: there are none.
    """
    if superclasses_N is None:
        raise Mistakes(
            f"{', '.join(superclass_metrics(names))} compares clusters with superclasses, and none are given: give the"
            " superclass of each image."
        )
    return superclasses_N.cpu()


# The bare search for the most similar rows, on the device where they lie.
#
# Shapes: N gallery, D embedding, Q queries, K nearest.

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


# The exact ranking of the gallery for every query: by cosine similarity in float64, ties by index.
#
# A search in float32 finds the candidates. Where two of them lie closer than its rounding and only one is
# relevant, their similarities are computed again in float64, so that no block size, thread or device can change a
# score.
#
# Shapes: N images of the gallery (the first of them are the queries), D embedding, Q queries of a block, K ranks, M
# pairs.

_INDICES = 2**20
"""Beside 41 bits of similarity a key of 64 holds an index below this."""

_LAST = torch.iinfo(torch.int64).min
"""Below every key."""

_COUNTED = 16
"""Positives of a query up to which counting their ranks is faster than sorting: .08 ms each against 1.8 for 60,000."""

_SPARE = 8
"""Candidates beyond those asked for, which settle nearly all ties at the boundary."""

_BLOCK_QUERIES = 8192
_BLOCK_RANKS = 2**23


class Gallery:
    """N labelled embeddings, of which any is ranked against all others.

    Itself is left out by its index, so that a duplicate of a query stays in its ranking.
    """

    def __init__(self, embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> None:
        self._raw_ND = embeddings_ND
        self.labels_N = labels_N
        self._unit_ND = torch.nn.functional.normalize(embeddings_ND.double()).float().contiguous()
        self._exact: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def __len__(self) -> int:
        return len(self.labels_N)

    def relevance(self, depth: int, queries: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Blocks of the first ``queries`` images: their numbers [Q], and which of their K = depth nearest are of their
        class.

        Ranks that the gallery does not have are not relevant.
        """
        ranks = min(depth, len(self) - 1)
        block = max(min(_BLOCK_QUERIES, _BLOCK_RANKS // depth), 1)
        for queries_Q in torch.arange(queries, device=self.labels_N.device).split(block):
            relevant_QK = self._relevance(queries_Q, ranks)
            yield queries_Q, torch.nn.functional.pad(relevant_QK, (0, depth - ranks))

    def neighbours(self, queries_Q: torch.Tensor, k: int) -> torch.Tensor:
        """The indices of the k nearest of some queries, int64 [Q, K]; K is less than k where there are fewer others."""
        ranks = min(k, len(self) - 1)
        parts = [self._neighbours(block_Q, ranks) for block_Q in queries_Q.split(_BLOCK_QUERIES)]
        return torch.cat(parts) if parts else queries_Q.new_zeros((0, ranks))

    def whole_relevance(self, queries_Q: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """As :meth:`relevance` for some queries and all ranks."""
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
        # What was not fetched may tie with the last rank asked for, which itself pushes to column `ranks`.
        open_Q = similarities_QK[:, ranks] - similarities_QK[:, -1] <= ROUNDING
        similarities_QK = similarities_QK.masked_fill(rows_QK == queries_Q[:, None], -torch.inf)
        similarities_QK, order_QK = similarities_QK.sort(descending=True)
        rows_QK = rows_QK.gather(1, order_QK)
        relevant_QK = self._settled(queries_Q, similarities_QK, rows_QK)[:, :ranks]
        if open_Q.any():
            relevant_QK[open_Q] = self._full_relevance(queries_Q[open_Q], ranks)
        return relevant_QK

    def _settled(self, queries_Q: torch.Tensor, similarities_QK: torch.Tensor, rows_QK: torch.Tensor) -> torch.Tensor:
        """Relevance in the exact order, from candidates in the order of float32."""
        relevant_QK = self.labels_N[rows_QK] == self.labels_N[queries_Q][:, None]
        close_QK = similarities_QK[:, :-1] - similarities_QK[:, 1:] <= ROUNDING
        run_QK = torch.nn.functional.pad((~close_QK).cumsum(1), (1, 0))
        # The order within a run of near ties matters only where some of it is relevant and some is not.
        length_QK = torch.zeros_like(run_QK).scatter_add_(1, run_QK, torch.ones_like(run_QK))
        hits_QK = torch.zeros_like(run_QK).scatter_add_(1, run_QK, relevant_QK.long())
        mixed_QK = ((hits_QK > 0) & (hits_QK < length_QK)).gather(1, run_QK)
        for row in mixed_QK.any(1).nonzero().flatten().split(1024):
            relevant_QK[row] = self._resorted(queries_Q[row], run_QK[row], rows_QK[row], mixed_QK[row])
        return relevant_QK

    def _resorted(
        self, queries_Q: torch.Tensor, run_QK: torch.Tensor, rows_QK: torch.Tensor, mixed_QK: torch.Tensor
    ) -> torch.Tensor:
        """Relevance in the order of runs, within them of exact similarity where mixed, then of index."""
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
        """The first ranks of the whole ranking, from all similarities in float64."""
        parts = []
        for queries, keys_QN in self._full_keys(queries_Q):
            parts.append(_relevance_of_keys(keys_QN, self.labels_N == self.labels_N[queries][:, None])[:, :ranks])
        return torch.cat(parts)

    def _full_keys(self, queries_Q: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Blocks of queries with the :meth:`_keys` of all images, of which a query's own is the last."""
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
        """Similarity on the grid and index in one whole number, the largest of which ranks first."""
        assert len(self) < _INDICES
        return exact_QK.long() * _INDICES + (len(self) - 1 - rows)


def _relevance_of_keys(keys_QN: torch.Tensor, same_QN: torch.Tensor) -> torch.Tensor:
    """Relevance [Q, N] in the order of falling keys, all different; the query itself has the least."""
    most = int(same_QN.sum(1).max()) - 1
    if most > _COUNTED:
        return same_QN.gather(1, keys_QN.sort(descending=True).indices)
    # with few positives their ranks are counted sooner than all is sorted; missing ones land on the query's last rank
    positive_QR = keys_QN.masked_fill(~same_QN, _LAST).topk(most).values
    relevant_QN = torch.zeros_like(same_QN)
    for rank in range(most):
        ahead_Q1 = (keys_QN > positive_QR[:, rank, None]).sum(1, keepdim=True, dtype=torch.int32)
        relevant_QN.scatter_(1, ahead_Q1.long(), True)
    return relevant_QN


def _first_of_duplicates(raw_ND: torch.Tensor) -> torch.Tensor | None:
    """For each row the first that equals it; None where all differ.

    A matrix product may round equal rows differently, by their position in it.
    """
    _, group_N = raw_ND.unique(dim=0, return_inverse=True)
    groups = int(group_N.max()) + 1
    if groups == len(raw_ND):
        return None
    numbers_N = torch.arange(len(raw_ND), device=raw_ND.device)
    first_G = numbers_N.new_full((groups,), len(raw_ND)).scatter_reduce(0, group_N, numbers_N, "amin")
    return first_G[group_N]
