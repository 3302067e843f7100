"""Exact ranking of a gallery for every query, and checks of a metric's input.

Shapes: N images, G images of the gallery, D embedding, Q queries of a block, K ranks, M pairs,
R relevant images of a query.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import distributions
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import pad

from trainables.common.errors import raise_if_any
from trainables.common.vectors import unit, without_direction
from trainables.metrics.retrieval import Ranking, RetrievalProtocol, average_precision

logger = logging.getLogger(__name__)


def checked(embeddings_ND: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return the embeddings detached, and the labels on their device, or raise all that is wrong with them."""
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
"""Float64 similarities are rounded to steps of 2⁻⁴⁰; those at most one step apart tie, since equal ones may differ."""

_BLOCK_BYTES = 2**28


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


def nearest(queries_QD: Tensor, gallery_ND: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest inner products of each query and their gallery rows, both [Q, K], largest first.

    Inputs are float32 on one device. Products closer than :data:`ROUNDING` are in any order. On a CPU faiss searches,
    which is faster than torch; it may be missing on a machine that only trains. On a GPU torch searches.
    """
    faiss = import_faiss()[0] if gallery_ND.device.type == "cpu" else None
    if faiss is None:
        block = max(_BLOCK_BYTES // (4 * len(gallery_ND)), 1)
        with full_float32():
            parts = [(part_QD @ gallery_ND.T).topk(k) for part_QD in queries_QD.split(block)]
        return torch.cat([values for values, _ in parts]), torch.cat([rows for _, rows in parts])
    faiss.omp_set_num_threads(torch.get_num_threads())
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

    def __init__(self, embeddings_ND: Tensor, labels_N: Tensor, protocol: RetrievalProtocol | None = None) -> None:
        protocol = protocol or RetrievalProtocol.first(len(labels_N), len(labels_N))
        self.protocol = protocol.to(labels_N.device)
        self.labels_N = labels_N
        self.queries_Q = self.protocol.queries_N.nonzero().flatten()
        self._rows_G = self.protocol.gallery_N.nonzero().flatten()
        self._raw_ND = embeddings_ND
        self._unit_ND = unit(embeddings_ND.double()).float().contiguous()
        self._unit_GD = self._unit_ND if len(self._rows_G) == len(self._unit_ND) else self._unit_ND[self._rows_G]
        self._exact: tuple[Tensor, Tensor | None] | None = None
        self.positives_N, ignored_N = self.protocol.counts(labels_N)
        self._sighting_N = self.protocol.sightings(labels_N)
        least, self._most_ignored = (int(limit(ignored_N[self.queries_Q])) for limit in (torch.min, torch.max))
        self.longest, self.shortest = len(self._rows_G) - least, len(self._rows_G) - self._most_ignored
        self._block = max(min(_BLOCK_QUERIES, _BLOCK_PRODUCTS // max(len(self._rows_G), 1)), 1)

    def rankings(self, depth: int) -> Iterator[tuple[Tensor, Ranking]]:
        """Yield blocks of queries in any order: indices [Q], and the first ``depth`` ranks, or all of the gallery."""
        ranks = min(depth, self.longest)
        for block_Q in self.queries_Q.split(max(min(self._block, _BLOCK_RANKS // max(depth, 1)), 1)):
            yield from self._rankings(block_Q, ranks)

    def neighbours(self, queries_Q: Tensor, k: int) -> Tensor:
        """Return the indices of the k nearest of some queries, int64 [Q, K]; K is below k in a smaller gallery."""
        ranks = min(k, self.shortest)
        parts = [self._neighbours(block_Q, ranks) for block_Q in queries_Q.split(self._block)]
        return torch.cat(parts) if parts else queries_Q.new_zeros((0, ranks))

    def average_precisions(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield blocks of the queries: indices [Q], and their average precision over the whole ranking [Q]."""
        most = int(self.positives_N[self.queries_Q].max())
        for block_Q, exact_QG in self.similarities(self.queries_Q):
            ignored_QG, relevant_QG = self._pairs(block_Q)
            exact_QG.masked_fill_(ignored_QG, -torch.inf)
            hits_QR = exact_QG.masked_fill(~relevant_QG, -torch.inf).topk(most).values
            before_QR = _numbers_above(exact_QG, hits_QR + 1)
            tied_QR = (_numbers_above(exact_QG, hits_QR - 1, equal=True) - before_QR).double()
            before_QR = before_QR.double().masked_fill(hits_QR.isinf(), torch.inf)
            yield block_Q, average_precision(before_QR, tied_QR, self.positives_N[block_Q])

    def similarities(self, queries_Q: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield blocks of some queries with their similarities to the gallery in steps of 1 / :data:`GRID` [Q, G]."""
        if self._exact is None:
            raw_GD = self._raw_ND[self._rows_G]
            self._exact = unit(raw_GD.double()), _first_of_duplicates(raw_GD)
        unit_GD, first_G = self._exact
        for block_Q in queries_Q.split(max(_BLOCK_BYTES // (64 * len(unit_GD)), 1)):
            exact_QG = (unit(self._raw_ND[block_Q].double()) @ unit_GD.T * GRID).round()
            yield block_Q, exact_QG if first_G is None else exact_QG[:, first_G]

    def _candidates(self, queries_Q: Tensor, ranks: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return similarities and rows of more than the first ranks, [Q, K]; None if the gallery has hardly more.

        The last result marks the queries [Q] for which images beyond these may tie with the last rank.
        """
        candidates = ranks + self._most_ignored + _SPARE
        if 2 * candidates >= len(self._rows_G):
            return None
        similarities_QK, places_QK = nearest(self._unit_ND[queries_Q], self._unit_GD, candidates)
        open_Q = similarities_QK[:, ranks + self._most_ignored - 1] - similarities_QK[:, -1] <= ROUNDING
        return similarities_QK, self._rows_G[places_QK], open_Q

    def _ignored(self, queries_Q: Tensor, rows_QK: Tensor) -> Tensor:
        return self._sighting_N[rows_QK] == self._sighting_N[queries_Q][:, None]

    def _neighbours(self, queries_Q: Tensor, ranks: int) -> Tensor:
        found = self._candidates(queries_Q, ranks)
        if found is None:
            return self._full_neighbours(queries_Q, ranks)
        _, rows_QK, open_Q = found
        exact_QK = self._exact_pairs(queries_Q.repeat_interleave(rows_QK.shape[1]), rows_QK.flatten())
        keys_QK = self._keys(exact_QK.view(rows_QK.shape), rows_QK)
        keys_QK = keys_QK.masked_fill(self._ignored(queries_Q, rows_QK), _LAST)
        nearest_QK = rows_QK.gather(1, keys_QK.topk(ranks).indices)
        if open_Q.any():
            nearest_QK[open_Q] = self._full_neighbours(queries_Q[open_Q], ranks)
        return nearest_QK

    def _full_neighbours(self, queries_Q: Tensor, ranks: int) -> Tensor:
        parts = []
        for block_Q, exact_QG in self.similarities(queries_Q):
            keys_QG = self._keys(exact_QG, self._rows_G).masked_fill_(self._pairs(block_Q)[0], _LAST)
            parts.append(keys_QG.topk(ranks).indices)
        return self._rows_G[torch.cat(parts)]

    def _rankings(self, queries_Q: Tensor, ranks: int) -> Iterator[tuple[Tensor, Ranking]]:
        found = self._candidates(queries_Q, ranks)
        if found is None:
            yield from self._full_rankings(queries_Q, ranks)
            return
        similarities_QK, rows_QK, open_Q = found
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
            yield queries_Q[row], Ranking.of_ties(keys_QK, relevant_QK[row], self.positives_N[queries_Q[row]], ranks)

    def _full_rankings(self, queries_Q: Tensor, ranks: int) -> Iterator[tuple[Tensor, Ranking]]:
        """Yield rankings from all similarities in float64."""
        for block_Q, exact_QG in self.similarities(queries_Q):
            ignored_QG, relevant_QG = self._pairs(block_Q)
            exact_QG.masked_fill_(ignored_QG, -torch.inf)
            yield block_Q, Ranking.of_ties(exact_QG, relevant_QG, self.positives_N[block_Q], ranks)

    def _exact_pairs(self, left_M: Tensor, right_M: Tensor) -> Tensor:
        """Return the similarities of pairs of a query and an image, in steps of 1 / :data:`GRID` [M]."""
        parts = []
        for left, right in zip(left_M.split(4096), right_M.split(4096), strict=True):
            left_MD, right_MD = (unit(self._raw_ND[rows_M].double()) for rows_M in (left, right))
            parts.append((left_MD * right_MD).sum(1))
        return (torch.cat(parts) * GRID).round()

    def _pairs(self, queries_Q: Tensor) -> tuple[Tensor, Tensor]:
        """Return which images of the gallery each query ignores, and which are relevant to it, both bool [Q, G]."""
        ignored_QG = self._ignored(queries_Q, self._rows_G[None])
        same_QG = self.labels_N[self._rows_G] == self.labels_N[queries_Q][:, None]
        return ignored_QG, same_QG & ~ignored_QG

    def _keys(self, exact_QK: Tensor, rows: Tensor) -> Tensor:
        """Combine rounded similarity and index into one integer, the largest of which ranks first."""
        assert len(self.labels_N) < _INDICES
        return exact_QK.long() * _INDICES + (len(self.labels_N) - 1 - rows)


def _numbers_above(values_QG: Tensor, bounds_QR: Tensor, *, equal: bool = False) -> Tensor:
    """Return how many values of a row are above each bound, or ``equal`` to it: [Q, R]; bounds are descending."""
    places_QG = torch.searchsorted(bounds_QR.flip(1), values_QG, right=equal)
    counts = places_QG.new_zeros((len(bounds_QR), bounds_QR.shape[1] + 1))
    counts.scatter_add_(1, places_QG, torch.ones_like(places_QG))
    return counts.flip(1).cumsum(1)[:, :-1]


def _first_of_duplicates(raw_ND: Tensor) -> Tensor | None:
    """Return the first equal row of each row, since products may round them differently; None if all are distinct."""
    _, group_N = raw_ND.unique(dim=0, return_inverse=True)
    groups = int(group_N.max()) + 1
    if groups == len(raw_ND):
        return None
    numbers_N = torch.arange(len(raw_ND), device=raw_ND.device)
    first_row = numbers_N.new_full((groups,), len(raw_ND)).scatter_reduce(0, group_N, numbers_N, "amin")
    return first_row[group_N]
