"""Exact ranking of a gallery for every query, and checks of a metric's input.

Shapes: N images, G images of the gallery, D embedding, Q queries of a block, K ranks, M and P pairs,
R relevant images of a query.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import distributions
from types import ModuleType

import numpy as np
import torch
from torch.nn.functional import pad

from trainables.common.errors import InvalidInput, raise_if_any
from trainables.common.vectors import unit, without_direction
from trainables.metrics.retrieval import Hits, Ranking, RetrievalProtocol, tie_groups

logger = logging.getLogger(__name__)


def checked(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the embeddings detached, and the labels on their device.

    Raises:
        InvalidInput: no embeddings, zero or not finite ones, or labels of another number.
    """
    mistakes = []
    if embeddings_ND.ndim != 2 or 0 in embeddings_ND.shape:
        mistakes.append(
            f"Embeddings must be N rows of D numbers, not of shape {tuple(embeddings_ND.shape)}: give at least one."
        )
    else:
        if bad := without_direction(embeddings_ND):
            mistakes.append(
                f"{bad}, so they have no direction to compare: the training diverged, or remove these items."
            )
        if labels_N.shape != embeddings_ND.shape[:1]:
            mistakes.append(
                f"Labels must be one per embedding; they have shape {tuple(labels_N.shape)} and the embeddings"
                f" {tuple(embeddings_ND.shape)}: give {len(embeddings_ND)}."
            )
    raise_if_any(mistakes)
    return embeddings_ND.detach(), labels_N.to(embeddings_ND.device)


# Approximate search: the most similar rows in float32.

ROUNDING = 4e-6
"""Float32 similarities of unit vectors that differ by more than this are in their true order."""

GRID = 2.0**40
"""Float64 similarities are rounded to steps of 2⁻⁴⁰, far above rounding errors.

Those at most one step apart tie: the last bits of a matrix product depend on the position in it, and may round equal
similarities to neighbouring steps.
"""

SEARCH = "HOLDOUT_SEARCH"
"""Environment variable that chooses the library which searches neighbours: ``faiss`` or ``torch``."""

_BLOCK_BYTES = 2**28


def faiss_for(device: torch.device) -> ModuleType | None:
    """Return faiss, with torch's number of threads, if it should search on ``device``; None if torch should.

    On a CPU faiss is faster; it may be missing on a machine that only trains. On a GPU torch searches, which is always
    installed; ``make gpu-day`` times both. The environment variable :data:`SEARCH` chooses otherwise.

    Raises:
        InvalidInput: the choice is unknown, or faiss is chosen and cannot be imported or has no GPU.
    """
    chosen = os.environ.get(SEARCH)
    if chosen not in (None, "", "faiss", "torch"):
        raise InvalidInput(f"{SEARCH} must be faiss or torch, or unset; it is {chosen!r}.")
    if chosen == "torch" or (device.type != "cpu" and chosen != "faiss"):
        return None
    faiss, problem = import_faiss()
    if faiss is None:
        if chosen == "faiss":
            raise InvalidInput(f"{SEARCH} is faiss, which cannot be imported ({problem}); install it, or set torch.")
        return None
    if device.type != "cpu" and not getattr(faiss, "get_num_gpus", int)():
        raise InvalidInput(f"{SEARCH} is faiss, and this faiss has no GPU; install faiss-gpu, or set torch.")
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


def faiss_wheels() -> list[str]:
    """Return the installed ones of the two wheels that have the module faiss; both write into its folder."""
    return [name for name in ("faiss-gpu", "faiss-cpu") if any(distributions(name=name))]


@cache
def import_faiss() -> tuple[ModuleType | None, str]:
    """Return faiss, or None and why it cannot be imported; a faiss that is installed but broken is logged once."""
    try:
        import faiss  # late: only a process that searches needs it

        if not hasattr(faiss, "IndexFlatIP"):  # an empty folder is a module, too
            (name, *_) = [*faiss_wheels(), "faiss-cpu"]
            repair = f"`pip install --force-reinstall --no-deps {name}` writes them again"
            raise ImportError(f"its files were removed, as with the other one of faiss-cpu and faiss-gpu; {repair}")
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
    faiss = faiss_for(gallery_ND.device)
    if faiss is None:
        block = max(_BLOCK_BYTES // (4 * len(gallery_ND)), 1)
        with full_float32():
            parts = [(part_QD @ gallery_ND.T).topk(k) for part_QD in queries_QD.split(block)]
        return torch.cat([values for values, _ in parts]), torch.cat([rows for _, rows in parts])
    if gallery_ND.is_cuda:
        import faiss.contrib.torch_utils

        resources, metric = faiss.StandardGpuResources(), faiss.METRIC_INNER_PRODUCT
        found = faiss.knn_gpu(resources, queries_QD.contiguous(), gallery_ND.contiguous(), k, metric=metric)
        return found[0], found[1]
    index = faiss.IndexFlatIP(gallery_ND.shape[1])
    index.add(gallery_ND.numpy())
    similarities_QK, rows_QK = index.search(queries_QD.numpy(), k)
    return torch.from_numpy(similarities_QK), torch.from_numpy(rows_QK)


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

_MOST_CLOSE = 64
"""Most pairs of a relevant image and a near tie of it, per query, that are settled one by one."""

_SPARE = 8
"""Additional candidates, which resolve nearly all ties at the last rank."""

_BLOCK_QUERIES = 8192
_BLOCK_PRODUCTS = 2**30
"""Most similarities of a block of queries: some seconds, after which progress is known."""
_BLOCK_RANKS = 2**23


class Gallery:
    """A gallery among N labelled embeddings, ranked for each query by cosine similarity in float64.

    A float32 search finds the candidates. If two are closer than its rounding and only one of them is relevant, their
    similarities are recomputed in float64, so that no block size, thread, device or order of the images can change a
    score. Ties stay ties (:data:`GRID`) in rankings and hits; neighbours are listed by index where they tie. The images
    that a query ignores, such as itself, are excluded by index, so a duplicate of the query is not.
    """

    def __init__(
        self, embeddings_ND: torch.Tensor, labels_N: torch.Tensor, protocol: RetrievalProtocol | None = None
    ) -> None:
        protocol = protocol or RetrievalProtocol.first(len(labels_N), len(labels_N))
        self.protocol = protocol.to(labels_N.device)
        self.labels_N = labels_N
        self.queries_Q = self.protocol.queries_N.nonzero().flatten()
        self._rows_G = self.protocol.gallery_N.nonzero().flatten()
        self._place_N = torch.where(self.protocol.gallery_N, self.protocol.gallery_N.cumsum(0) - 1, -1)
        self._raw_ND = embeddings_ND
        self._unit_ND = _unit64(embeddings_ND).float().contiguous()
        self._unit_GD = self._unit_ND if len(self._rows_G) == len(self._unit_ND) else self._unit_ND[self._rows_G]
        self._exact: tuple[torch.Tensor, torch.Tensor | None] | None = None
        self.positives_N, ignored_N = self.protocol.counts(labels_N)
        least, self._most_ignored = (int(limit(ignored_N[self.queries_Q])) for limit in (torch.min, torch.max))
        self.longest, self.shortest = len(self._rows_G) - least, len(self._rows_G) - self._most_ignored
        self._block = max(min(_BLOCK_QUERIES, _BLOCK_PRODUCTS // max(len(self._rows_G), 1)), 1)

    def rankings(self, depth: int) -> Iterator[tuple[torch.Tensor, Ranking]]:
        """Yield blocks of the queries, in any order: indices [Q], and the first ``depth`` ranks.

        Ranks end at the size of the gallery.
        """
        ranks = min(depth, self.longest)
        for block_Q in self.queries_Q.split(max(min(self._block, _BLOCK_RANKS // max(depth, 1)), 1)):
            yield from self._rankings(block_Q, ranks)

    def neighbours(self, queries_Q: torch.Tensor, k: int) -> torch.Tensor:
        """Return the indices of the k nearest of some queries, int64 [Q, K]; K is below k in a smaller gallery."""
        ranks = min(k, self.shortest)
        parts = [self._neighbours(block_Q, ranks) for block_Q in queries_Q.split(self._block)]
        return torch.cat(parts) if parts else queries_Q.new_zeros((0, ranks))

    def hits(self) -> Iterator[tuple[torch.Tensor, Hits]]:
        """Yield blocks of the queries: indices [Q], and their relevant images."""
        most = int(self.positives_N[self.queries_Q].max())
        for block_Q in self.queries_Q.split(max(_BLOCK_RANKS // len(self._rows_G), 1)):
            yield block_Q, self._hits(block_Q, most)

    def similarities(self, queries_Q: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks of some queries with their similarities to the gallery in steps of 1 / :data:`GRID` [Q, G]."""
        if self._exact is None:
            raw_GD = self._raw_ND[self._rows_G]
            self._exact = _unit64(raw_GD), _first_of_duplicates(raw_GD)
        unit_GD, first_G = self._exact
        for block_Q in queries_Q.split(max(_BLOCK_BYTES // (64 * len(unit_GD)), 1)):
            exact_QG = (_unit64(self._raw_ND[block_Q]) @ unit_GD.T * GRID).round()
            yield block_Q, exact_QG if first_G is None else exact_QG[:, first_G]

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
        exact_QK = self._exact_pairs(queries_Q.repeat_interleave(rows_QK.shape[1]), rows_QK.flatten())
        keys_QK = self._keys(exact_QK.view(rows_QK.shape), rows_QK)
        keys_QK = keys_QK.masked_fill(self._ignored(queries_Q, rows_QK), _LAST)
        nearest_QK = rows_QK.gather(1, keys_QK.topk(ranks).indices)
        if open_Q.any():
            nearest_QK[open_Q] = self._full_neighbours(queries_Q[open_Q], ranks)
        return nearest_QK

    def _full_neighbours(self, queries_Q: torch.Tensor, ranks: int) -> torch.Tensor:
        parts = []
        for block_Q, exact_QG in self.similarities(queries_Q):
            keys_QG = self._keys(exact_QG, self._rows_G)
            keys_QG[self._ignored_pairs(block_Q)] = _LAST
            parts.append(keys_QG.topk(ranks).indices)
        return self._rows_G[torch.cat(parts)]

    def _rankings(self, queries_Q: torch.Tensor, ranks: int) -> Iterator[tuple[torch.Tensor, Ranking]]:
        found = self._candidates(queries_Q, ranks)
        if found is None:
            yield from self._full_rankings(queries_Q, ranks)
            return
        similarities_QK, rows_QK = found
        open_Q = self._open(similarities_QK, ranks)
        if open_Q.any():
            yield from self._full_rankings(queries_Q[open_Q], ranks)
            queries_Q, similarities_QK, rows_QK = queries_Q[~open_Q], similarities_QK[~open_Q], rows_QK[~open_Q]
        similarities_QK = similarities_QK.masked_fill(self._ignored(queries_Q, rows_QK), -torch.inf)
        similarities_QK, order_QK = similarities_QK.sort(descending=True)
        rows_QK = rows_QK.gather(1, order_QK)
        relevant_QK = self.labels_N[rows_QK] == self.labels_N[queries_Q][:, None]
        # float32 orders what is not close, and order matters only among near ties of which some are relevant
        close_QK = similarities_QK[:, :-1] - similarities_QK[:, 1:] <= ROUNDING
        mixed_Q = (close_QK & (relevant_QK[:, :-1] != relevant_QK[:, 1:])).any(1)
        ordered_Q = queries_Q[~mixed_Q]
        yield ordered_Q, Ranking.of(relevant_QK[~mixed_Q, :ranks], self.positives_N[ordered_Q])
        for row in mixed_Q.nonzero().flatten().split(1024):
            keys_QK = similarities_QK[row].double() * GRID
            near_QK = pad(close_QK[row], (0, 1)) | pad(close_QK[row], (1, 0))
            query_M, column_M = near_QK.nonzero(as_tuple=True)
            keys_QK[near_QK] = self._exact_pairs(queries_Q[row][query_M], rows_QK[row][query_M, column_M])
            yield queries_Q[row], self._ranking(queries_Q[row], keys_QK, relevant_QK[row], ranks)

    def _full_rankings(self, queries_Q: torch.Tensor, ranks: int) -> Iterator[tuple[torch.Tensor, Ranking]]:
        """Yield rankings from all similarities in float64."""
        for block_Q, exact_QG in self.similarities(queries_Q):
            exact_QG[self._ignored_pairs(block_Q)] = -torch.inf
            yield block_Q, self._ranking(block_Q, exact_QG, self._relevant_pairs(block_Q), ranks)

    def _ranking(
        self, queries_Q: torch.Tensor, keys_QK: torch.Tensor, relevant_QK: torch.Tensor, ranks: int
    ) -> Ranking:
        """Return the first ranks by ``keys_QK``, descending, of which those that differ by at most 1 tie."""
        return Ranking.of_ties(*_sorted(keys_QK, relevant_QK), self.positives_N[queries_Q], ranks)

    def _hits(self, queries_Q: torch.Tensor, most: int) -> Hits:
        """Return the relevant images of some queries; R is ``most``.

        Sorted float32 similarities count the images that are more similar by more than rounding. Those that are as
        similar up to rounding are compared in float64, in whole rankings for queries with many of them.
        """
        with full_float32():
            near_QG = self._unit_ND[queries_Q] @ self._unit_GD.T
        near_QG[self._ignored_pairs(queries_Q)] = -torch.inf
        hits_QR, places_QR = near_QG.masked_fill(~self._relevant_pairs(queries_Q), -torch.inf).topk(most)
        if near_QG.device.type == "cpu":  # NumPy sorts float32 ten times faster than PyTorch
            ordered_QG = torch.from_numpy(np.sort(near_QG.numpy(), axis=1))
        else:
            ordered_QG = near_QG.sort(1).values
        less_QR = torch.searchsorted(ordered_QG, hits_QR - ROUNDING)
        not_more_QR = torch.searchsorted(ordered_QG, hits_QR + ROUNDING, right=True)
        missing_QR = hits_QR == -torch.inf
        before_QR = len(self._rows_G) - not_more_QR
        tied_QR = torch.ones_like(before_QR)
        close_QR = (not_more_QR - less_QR - 1).masked_fill(missing_QR, 0)
        crowded_Q = close_QR.sum(1) > _MOST_CLOSE
        close_QR[crowded_Q] = 0
        for pairs in close_QR.nonzero().split(max(_BLOCK_RANKS // len(self._rows_G), 1)):
            row_M, column_M = pairs.T
            ahead_M, tied_QR[row_M, column_M] = self._close(
                queries_Q[row_M], near_QG[row_M], places_QR[row_M, column_M], hits_QR[row_M, column_M]
            )
            before_QR[row_M, column_M] += ahead_M
        before_QR, order_QR = before_QR.double().masked_fill(missing_QR, torch.inf).sort(1)
        tied_QR = tied_QR.double().gather(1, order_QR)
        if crowded_Q.any():
            parts = []
            for block_Q, exact_QG in self.similarities(queries_Q[crowded_Q]):
                exact_QG[self._ignored_pairs(block_Q)] = -torch.inf
                relevant_QG, tied_QG = _sorted(exact_QG, self._relevant_pairs(block_Q))
                first_QG, sizes_QG = tie_groups(tied_QG)
                first_QR, places_QR = torch.where(relevant_QG, first_QG, torch.inf).topk(most, largest=False)
                parts.append((first_QR.double(), sizes_QG.gather(1, places_QR)))
            before_QR[crowded_Q], tied_QR[crowded_Q] = map(torch.cat, zip(*parts, strict=True))
        return Hits(before_QR=before_QR, tied_QR=tied_QR)

    def _close(
        self, queries_M: torch.Tensor, near_MG: torch.Tensor, places_M: torch.Tensor, hits_M: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return how many near ties of a query's relevant image rank before it, and how many tie with it, both [M]."""
        pair_P, place_P = ((near_MG - hits_M[:, None]).abs() <= ROUNDING).nonzero(as_tuple=True)
        other_P, own_P = (
            self._exact_pairs(queries_M[pair_P], self._rows_G[places]) for places in (place_P, places_M[pair_P])
        )
        counts = (other_P > own_P + 1, (other_P - own_P).abs() <= 1)
        ahead_M, tied_M = (torch.zeros_like(places_M).index_add_(0, pair_P, count_P.long()) for count_P in counts)
        return ahead_M, tied_M

    def _exact_pairs(self, left_M: torch.Tensor, right_M: torch.Tensor) -> torch.Tensor:
        """Return the similarities of pairs of a query and an image, in steps of 1 / :data:`GRID` [M]."""
        parts = []
        for left, right in zip(left_M.split(4096), right_M.split(4096), strict=True):
            left_MD, right_MD = _unit64(self._raw_ND[left]), _unit64(self._raw_ND[right])
            parts.append((left_MD * right_MD).sum(1))
        return (torch.cat(parts) * GRID).round()

    def _relevant_pairs(self, queries_Q: torch.Tensor) -> torch.Tensor:
        """Return which images of its gallery are relevant to each query, bool [Q, G]."""
        relevant_QG = self.labels_N[self._rows_G] == self.labels_N[queries_Q][:, None]
        relevant_QG[self._ignored_pairs(queries_Q)] = False
        return relevant_QG

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
    return unit(raw.double())


def _sorted(keys_QK: torch.Tensor, relevant_QK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return relevance by descending key, and which ranks tie with the one before: by at most 1; both [Q, K]."""
    keys_QK, order_QK = keys_QK.sort(descending=True)
    tied_QK = pad(keys_QK[:, :-1] - keys_QK[:, 1:] <= 1, (1, 0))
    return relevant_QK.gather(1, order_QK), tied_QK


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
