"""Exact ranking of a gallery for every query, and checks of a metric's input.

Shapes: N images, G images of the gallery, D embedding, Q queries of a block, K ranks, M pairs, R positives of a query.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import torch

from trainables.metrics.protocol import RetrievalProtocol
from trainables.metrics.table import superclass_metrics
from trainables.mistakes import Mistakes, raise_if_any

logger = logging.getLogger(__name__)


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

SEARCH = "HOLDOUT_SEARCH"
"""Environment variable that chooses the library which searches neighbours: ``faiss`` or ``torch``."""

_BLOCK_BYTES = 2**28


def faiss_for(device: torch.device) -> ModuleType | None:
    """Return faiss, with torch's number of threads, if it should search on ``device``; None if torch should.

    On a CPU faiss is faster; it may be missing on a machine that only trains. On a GPU torch searches, which is always
    installed; ``make bench-gpu`` times both. The environment variable :data:`SEARCH` chooses otherwise.

    Raises:
        Mistakes: the choice is unknown, or faiss is chosen and cannot be imported or has no GPU.
    """
    chosen = os.environ.get(SEARCH)
    if chosen not in (None, "", "faiss", "torch"):
        raise Mistakes(f"{SEARCH} must be faiss or torch, or unset; it is {chosen!r}.")
    if chosen == "torch" or (device.type != "cpu" and chosen != "faiss"):
        return None
    faiss, problem = _import_faiss()
    if faiss is None:
        if chosen == "faiss":
            raise Mistakes(f"{SEARCH} is faiss, which cannot be imported ({problem}); install it, or set torch.")
        return None
    if device.type != "cpu" and not getattr(faiss, "get_num_gpus", int)():
        raise Mistakes(f"{SEARCH} is faiss, and this faiss has no GPU; install faiss-gpu, or set torch.")
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


@cache
def _import_faiss() -> tuple[ModuleType | None, str]:
    """Return faiss, or None and why it cannot be imported; a faiss that is installed but broken is logged once."""
    try:
        import faiss  # late: only a process that searches needs it
    except ModuleNotFoundError as error:
        return None, str(error)
    except (ImportError, RuntimeError, OSError) as error:  # faiss-gpu without CUDA's libraries raises any of them
        logger.warning("faiss cannot be imported (%s); torch searches neighbours.", str(error))
        return None, str(error)
    return faiss, ""


def nearest(queries_QD: torch.Tensor, gallery_ND: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest inner products of each query and their gallery rows, both [Q, K], largest first.

    Inputs are float32 on one device. Products closer than :data:`ROUNDING` are in any order.
    """
    if faiss := faiss_for(gallery_ND.device):
        if gallery_ND.is_cuda:
            return _nearest_by_faiss_on_gpu(faiss, queries_QD, gallery_ND, k)
        index = faiss.IndexFlatIP(gallery_ND.shape[1])
        index.add(gallery_ND.numpy())
        similarities_QK, rows_QK = index.search(queries_QD.numpy(), k)
        return torch.from_numpy(similarities_QK), torch.from_numpy(rows_QK)
    return _nearest_by_torch(queries_QD, gallery_ND, k)


def _nearest_by_faiss_on_gpu(
    faiss: ModuleType, queries_QD: torch.Tensor, gallery_ND: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    import faiss.contrib.torch_utils

    resources = faiss.StandardGpuResources()
    similarities_QK, rows_QK = faiss.knn_gpu(
        resources, queries_QD.contiguous(), gallery_ND.contiguous(), k, metric=faiss.METRIC_INNER_PRODUCT
    )
    return similarities_QK, rows_QK


def _nearest_by_torch(queries_QD: torch.Tensor, gallery_ND: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    block = max(_BLOCK_BYTES // (4 * len(gallery_ND)), 1)
    with full_float32():
        parts = [(part_QD @ gallery_ND.T).topk(k) for part_QD in queries_QD.split(block)]
    return torch.cat([values for values, _ in parts]), torch.cat([rows for _, rows in parts])


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute matrix products and convolutions in float32, whatever the training allows.

    TF32, which torch allows for convolutions by default, has a mantissa of ten bits and would reorder neighbours. The
    settings by operation are used, which torch can always read; the older ones raise where a user has set these.
    """
    cuda, cudnn, mkldnn = (getattr(torch.backends, name) for name in ("cuda", "cudnn", "mkldnn"))
    libraries = (cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv)
    before = [library.fp32_precision for library in libraries]
    for library in libraries:
        library.fp32_precision = "ieee"
    try:
        yield
    finally:
        for library, precision in zip(libraries, before):
            library.fp32_precision = precision


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
    """A gallery among N labelled embeddings, ranked for each query by cosine similarity in float64, ties by index.

    A float32 search finds the candidates. If two are closer than its rounding and only one of them is relevant, their
    similarities are recomputed in float64, so that no block size, thread or device can change a score. The images that
    a query ignores, such as itself, are excluded by index, so a duplicate of the query is not.
    """

    def __init__(
        self,
        embeddings_ND: torch.Tensor,
        labels_N: torch.Tensor,
        protocol: RetrievalProtocol | None = None,
        *,
        queries_ND: torch.Tensor | None = None,
    ) -> None:
        """Prepare the ranking of N images; ``queries_ND`` are their embeddings as queries, if these are others."""
        protocol = protocol or RetrievalProtocol.first(len(labels_N), len(labels_N))
        self.protocol = protocol.to(labels_N.device)
        self.labels_N = labels_N
        self.queries_Q = self.protocol.queries_N.nonzero().flatten()
        self._rows_G = self.protocol.gallery_N.nonzero().flatten()
        self._place_N = torch.where(self.protocol.gallery_N, self.protocol.gallery_N.cumsum(0) - 1, -1)
        self._raw_ND = embeddings_ND
        self._queries_ND = embeddings_ND if queries_ND is None else queries_ND
        self._unit_ND = _unit64(self._queries_ND).float().contiguous()
        unit_ND = self._unit_ND if queries_ND is None else _unit64(embeddings_ND).float().contiguous()
        self._unit_GD = unit_ND if len(self._rows_G) == len(unit_ND) else unit_ND[self._rows_G]
        self._exact: tuple[torch.Tensor, torch.Tensor | None] | None = None
        _, ignored_N = self.protocol.counts(labels_N)
        least, self._most_ignored = (int(limit(ignored_N[self.queries_Q])) for limit in (torch.min, torch.max))
        self.longest, self.shortest = len(self._rows_G) - least, len(self._rows_G) - self._most_ignored

    def relevance(self, depth: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks of the queries: indices [Q], and relevance of their K = depth nearest [Q, K].

        Ranks beyond the size of the gallery are not relevant.
        """
        ranks = min(depth, self.longest)
        block = max(min(_BLOCK_QUERIES, _BLOCK_RANKS // depth), 1)
        for queries_Q in self.queries_Q.split(block):
            relevant_QK = self._relevance(queries_Q, ranks)
            yield queries_Q, torch.nn.functional.pad(relevant_QK, (0, depth - ranks))

    def neighbours(self, queries_Q: torch.Tensor, k: int) -> torch.Tensor:
        """Return the indices of the k nearest of some queries, int64 [Q, K]; K is below k in a smaller gallery."""
        ranks = min(k, self.shortest)
        parts = [self._neighbours(block_Q, ranks) for block_Q in queries_Q.split(_BLOCK_QUERIES)]
        return torch.cat(parts) if parts else queries_Q.new_zeros((0, ranks))

    def whole_relevance(self, queries_Q: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks as :meth:`relevance`, for some queries and all ranks."""
        for block_Q in queries_Q.split(max(_BLOCK_RANKS // len(self._rows_G), 1)):
            yield block_Q, self._full_relevance(block_Q, self.longest)

    def similarities(self, queries_Q: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks of some queries with their similarities to the gallery in steps of 1 / :data:`GRID` [Q, G]."""
        if self._exact is None:
            raw_GD = self._raw_ND[self._rows_G]
            self._exact = _unit64(raw_GD), _first_of_duplicates(raw_GD)
        unit_GD, first_G = self._exact
        for block_Q in queries_Q.split(max(_BLOCK_BYTES // (8 * len(unit_GD)), 1)):
            exact_QG = (_unit64(self._queries_ND[block_Q]) @ unit_GD.T * GRID).round()
            yield block_Q, exact_QG if first_G is None else exact_QG[:, first_G]

    def ordered(self, queries_Q: torch.Tensor, heights_QG: torch.Tensor, ranks: int) -> torch.Tensor:
        """Return relevance of the first ranks, the highest of whole numbers ``heights_QG`` first, ties by index."""
        relevant_QG = self.labels_N[self._rows_G] == self.labels_N[queries_Q][:, None]
        relevant_QG[self._ignored_pairs(queries_Q)] = False
        return _relevance_of_keys(self._full_keys(queries_Q, heights_QG), relevant_QG)[:, :ranks]

    def _candidates(self, queries_Q: torch.Tensor, ranks: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return similarities and rows of more than the first ranks, [Q, K]; None if the gallery has hardly more."""
        candidates = ranks + self._most_ignored + _SPARE
        if 2 * candidates >= len(self._rows_G):
            return None
        similarities_QK, places_QK = nearest(self._unit_ND[queries_Q], self._unit_GD, candidates)
        return similarities_QK, self._rows_G[places_QK]

    def _open(self, similarities_QK: torch.Tensor, ranks: int) -> torch.Tensor:
        """Return the queries for which images beyond the candidates may tie with the last rank."""
        last = ranks + self._most_ignored - 1
        return similarities_QK[:, last] - similarities_QK[:, -1] <= ROUNDING

    def _ignored(self, queries_Q: torch.Tensor, rows_QK: torch.Tensor) -> torch.Tensor:
        return self.protocol.ignored(self.labels_N, queries_Q, rows_QK)

    def _neighbours(self, queries_Q: torch.Tensor, ranks: int) -> torch.Tensor:
        found = self._candidates(queries_Q, ranks)
        if found is None:
            return self._full_neighbours(queries_Q, ranks)
        similarities_QK, rows_QK = found
        open_Q = self._open(similarities_QK, ranks)
        exact_QK = self.pair_similarities(queries_Q.repeat_interleave(rows_QK.shape[1]), rows_QK.flatten())
        keys_QK = self._keys(exact_QK.view(rows_QK.shape), rows_QK)
        keys_QK = keys_QK.masked_fill(self._ignored(queries_Q, rows_QK), _LAST)
        nearest_QK = rows_QK.gather(1, keys_QK.topk(ranks).indices)
        if open_Q.any():
            nearest_QK[open_Q] = self._full_neighbours(queries_Q[open_Q], ranks)
        return nearest_QK

    def _full_neighbours(self, queries_Q: torch.Tensor, ranks: int) -> torch.Tensor:
        parts = [
            self._full_keys(block_Q, exact_QG).topk(ranks).indices for block_Q, exact_QG in self.similarities(queries_Q)
        ]
        return self._rows_G[torch.cat(parts)]

    def _relevance(self, queries_Q: torch.Tensor, ranks: int) -> torch.Tensor:
        found = self._candidates(queries_Q, ranks)
        if found is None:
            return self._full_relevance(queries_Q, ranks)
        similarities_QK, rows_QK = found
        open_Q = self._open(similarities_QK, ranks)
        similarities_QK = similarities_QK.masked_fill(self._ignored(queries_Q, rows_QK), -torch.inf)
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
        exact_QK[query_M, column_M] = self.pair_similarities(queries_Q[query_M], rows_QK[query_M, column_M])
        rows_QK, order_QK = rows_QK.sort()
        for key_QK, descending in ((exact_QK, True), (run_QK, False)):
            step_QK = key_QK.gather(1, order_QK).sort(descending=descending, stable=True).indices
            order_QK = order_QK.gather(1, step_QK)
            rows_QK = rows_QK.gather(1, step_QK)
        return self.labels_N[rows_QK] == self.labels_N[queries_Q][:, None]

    def pair_similarities(self, left_M: torch.Tensor, right_M: torch.Tensor) -> torch.Tensor:
        """Return the similarities of pairs of a query and an image, in steps of 1 / :data:`GRID` [M]."""
        parts = []
        for left, right in zip(left_M.split(4096), right_M.split(4096), strict=True):
            left_MD, right_MD = _unit64(self._queries_ND[left]), _unit64(self._raw_ND[right])
            parts.append((left_MD * right_MD).sum(1))
        return (torch.cat(parts) * GRID).round()

    def _full_relevance(self, queries_Q: torch.Tensor, ranks: int) -> torch.Tensor:
        """Return relevance of the first ranks, from all similarities in float64."""
        return torch.cat([self.ordered(block_Q, exact_QG, ranks) for block_Q, exact_QG in self.similarities(queries_Q)])

    def _full_keys(self, queries_Q: torch.Tensor, heights_QG: torch.Tensor) -> torch.Tensor:
        """Return the :meth:`_keys` of the gallery; that of an image that a query ignores is ``_LAST``."""
        keys_QG = self._keys(heights_QG, self._rows_G)
        keys_QG[self._ignored_pairs(queries_Q)] = _LAST
        return keys_QG

    def _ignored_pairs(self, queries_Q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the queries and the places in the gallery of what they ignore, as indices of [Q, G]."""
        if self.protocol.cameras_N is not None:
            return self._ignored(queries_Q, self._rows_G[None]).nonzero(as_tuple=True)  # type: ignore[return-value]
        own_Q = self._place_N[queries_Q]
        (inside,) = (own_Q >= 0).nonzero(as_tuple=True)
        return inside, own_Q[inside]

    def _keys(self, exact_QK: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Combine rounded similarity and index into one integer, the largest of which ranks first."""
        assert len(self.labels_N) < _INDICES
        return exact_QK.long() * _INDICES + (len(self.labels_N) - 1 - rows)


def _unit64(raw: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(raw.double())


def _relevance_of_keys(keys_QG: torch.Tensor, relevant_QG: torch.Tensor) -> torch.Tensor:
    """Return relevance [Q, G] by descending key; keys are distinct, except those of ignored images, ``_LAST``."""
    most, size = int(relevant_QG.sum(1).max()), keys_QG.shape[1]
    if most > _COUNTED:
        return relevant_QG.gather(1, keys_QG.sort(descending=True).indices)
    # for few positives counting their ranks is faster than sorting; missing ones get a rank behind all others
    positive_QR = keys_QG.masked_fill(~relevant_QG, _LAST).topk(most).values
    ranked_QG = torch.nn.functional.pad(torch.zeros_like(relevant_QG), (0, 1))
    for rank in range(most):
        key_Q1 = positive_QR[:, rank, None]
        ahead_Q1 = (keys_QG > key_Q1).sum(1, keepdim=True, dtype=torch.int32)
        ranked_QG.scatter_(1, ahead_Q1.long().masked_fill(key_Q1 == _LAST, size), True)
    return ranked_QG[:, :size]


def _first_of_duplicates(raw_ND: torch.Tensor) -> torch.Tensor | None:
    """Return the first equal row of each row, or None if all are distinct.

    A matrix product may round equal rows differently, depending on their position.
    """
    _, group_N = raw_ND.unique(dim=0, return_inverse=True)
    groups = int(group_N.max()) + 1
    if groups == len(raw_ND):
        return None
    numbers_N = torch.arange(len(raw_ND), device=raw_ND.device)
    first_row = numbers_N.new_full((groups,), len(raw_ND)).scatter_reduce(0, group_N, numbers_N, "amin")
    return first_row[group_N]
