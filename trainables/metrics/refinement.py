"""Refined rankings: other orders of the gallery by the same embeddings, without labels.

Shapes: N images, G images of the gallery, D embedding, Q queries of a block, K neighbours.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from trainables.metrics.protocol import RetrievalProtocol
from trainables.metrics.ranking import GRID, Gallery, ranks_of_hits
from trainables.metrics.table import too_many_to_rerank
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

K1, K2, LAMBDA = 20, 6, 0.3
"""The parameters of Zhong et al. (2017) on Market-1501."""

EXPANDED, ALPHA = 10, 3
"""The number of neighbours in a sum, and the exponent of their similarities."""

BLOCK = 1024
"""The number of queries that are looked at together."""


class Ranked(Protocol):
    """A ranking of the gallery for each query, as :class:`Gallery` is."""

    queries_Q: torch.Tensor

    def relevance(self, depth: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks as :meth:`Gallery.relevance`."""

    def hit_ranks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks as :meth:`Gallery.hit_ranks`, of all queries."""


def refined(
    refinement: str | None, embeddings_ND: torch.Tensor, labels_N: torch.Tensor, protocol: RetrievalProtocol
) -> Ranked:
    """Return the ranking by a row of ``REFINEMENTS``, or by cosine similarity alone (None).

    Raises:
        Mistakes: there are too many images to be re-ranked.
    """
    if refinement is None:
        return Gallery(embeddings_ND, labels_N, protocol)
    if refinement == "reranked":
        if sentence := too_many_to_rerank(len(labels_N)):
            raise Mistakes(sentence)
        return _Reranked(embeddings_ND, labels_N, protocol)
    return _EXPANSIONS[refinement](embeddings_ND, labels_N, protocol)


# Expansions. Neighbours are found without the protocol's cameras, whose rule depends on the classes.


def _expanded_queries(embeddings_ND: torch.Tensor, labels_N: torch.Tensor, protocol: RetrievalProtocol) -> Gallery:
    """Return the ranking by α query expansion: a query is f(q) + Σ s(q, i)^α f(i), for the nearest i of its gallery.

    Radenović, Tolias and Chum: Fine-tuning CNN Image Retrieval with No Human Annotation, TPAMI 2019, section 3.4.
    """
    queries_ND = _expanded(embeddings_ND, protocol.queries_N, protocol.gallery_N)
    return Gallery(embeddings_ND.double(), labels_N, protocol, queries_ND=queries_ND)


def _augmented_gallery(embeddings_ND: torch.Tensor, labels_N: torch.Tensor, protocol: RetrievalProtocol) -> Gallery:
    """Return the ranking by database augmentation: a gallery image is the sum of itself and its nearest in the gallery.

    Gordo et al.: End-to-end Learning of Deep Visual Representations for Image Retrieval, IJCV 2017, section 5.2; with
    the weights of α query expansion. Queries are not expanded.
    """
    gallery_ND = _expanded(embeddings_ND, protocol.gallery_N, protocol.gallery_N)
    return Gallery(gallery_ND, labels_N, protocol, queries_ND=embeddings_ND.double())


_EXPANSIONS = {"aqe": _expanded_queries, "dba": _augmented_gallery}


def _expanded(embeddings_ND: torch.Tensor, of_N: torch.Tensor, gallery_N: torch.Tensor) -> torch.Tensor:
    """Return embeddings in float64 and of length 1, those ``of_N`` expanded by their nearest in the gallery."""
    unit_ND = torch.nn.functional.normalize(embeddings_ND.double())
    unlabelled_N = torch.zeros(len(unit_ND), dtype=torch.int64, device=unit_ND.device)
    gallery = Gallery(embeddings_ND, unlabelled_N, RetrievalProtocol(queries_N=of_N, gallery_N=gallery_N))
    expanded_ND = unit_ND.clone()
    for queries_Q in gallery.queries_Q.split(BLOCK):
        nearest_QKD = unit_ND[gallery.neighbours(queries_Q, EXPANDED)]
        weights_QK = (nearest_QKD * unit_ND[queries_Q][:, None]).sum(2).clamp(min=0) ** ALPHA
        sums_QD = unit_ND[queries_Q] + (nearest_QKD * weights_QK[:, :, None]).sum(1)
        expanded_ND[queries_Q] = torch.nn.functional.normalize(sums_QD)
    return expanded_ND


# Re-ranking.


class _Reranked:
    """The ranking by k-reciprocal neighbours.

    Zhong, Zheng, Cao and Li: Re-ranking Person Re-identification with k-reciprocal Encoding, CVPR 2017: k-reciprocal
    neighbours R (eq. 2-3), their expansion R* (eq. 4), V = exp(-d) on R* (eq. 7), local query expansion (eq. 11), and
    the Jaccard distance (eq. 10), whose mean with d (eq. 12) ranks. As in the authors' code, queries and gallery form
    one set of N images, each is its own nearest, d is the squared Euclidean distance of unit vectors over the largest
    in its row, and the rows of V sum to 1. V is sparse: memory grows with N, and only time with N².
    """

    def __init__(self, embeddings_ND: torch.Tensor, labels_N: torch.Tensor, protocol: RetrievalProtocol) -> None:
        self._gallery = Gallery(embeddings_ND, labels_N, protocol)
        self.queries_Q = self._gallery.queries_Q
        every = Gallery(embeddings_ND, torch.zeros_like(labels_N))
        rows_N = torch.arange(len(labels_N), device=labels_N.device)
        self._furthest_N = torch.cat([_distances(exact_QN).amax(1) for _, exact_QN in every.similarities(rows_N)])
        self._furthest_N.clamp_(min=1 / GRID)  # all embeddings may be equal
        ranked_NK = torch.cat((rows_N[:, None], every.neighbours(rows_N, K1)), dim=1).cpu().numpy()
        weights_NN = self._encoded(every, ranked_NK)
        self._weights_NN = _adjacency(ranked_NK[:, :K2]) @ weights_NN / min(K2, len(ranked_NK))
        gallery_G = protocol.gallery_N.cpu().numpy()
        self._inverted_NG = self._weights_NN[gallery_G].T.tocsr()

    def _encoded(self, every: Gallery, ranked_NK: np.ndarray) -> "csr_matrix":
        """Return V, sparse float64 [N, N]."""
        of_k1_NN, of_half_NN = (_reciprocal(ranked_NK[:, : k + 1]) for k in (K1, K1 // 2))
        sizes_N = np.asarray(of_half_NN.sum(axis=1)).ravel()
        shared_NN = (of_k1_NN @ of_half_NN.T).multiply(of_k1_NN).tocoo()
        kept = 3 * shared_NN.data >= 2 * sizes_N[shared_NN.col]
        joined_NN = _sparse(shared_NN.row[kept], shared_NN.col[kept], len(ranked_NK))
        encoded_NN = (of_k1_NN + joined_NN @ of_half_NN).tocsr()
        encoded_NN.sort_indices()
        row_M = np.repeat(np.arange(len(ranked_NK)), np.diff(encoded_NN.indptr))
        left_M, right_M = (torch.from_numpy(of_M.astype(np.int64)) for of_M in (row_M, encoded_NN.indices))
        device = self._furthest_N.device
        distances_M = _distances(every.pair_similarities(left_M.to(device), right_M.to(device)))
        weights_M = (-distances_M / self._furthest_N[left_M.to(device)]).exp().cpu().numpy()
        encoded_NN = encoded_NN.astype(np.float64)
        encoded_NN.data = weights_M / np.bincount(row_M, weights=weights_M)[row_M]
        return encoded_NN

    def relevance(self, depth: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks as :meth:`Gallery.relevance`."""
        for queries_Q, ranks_QR in zip(self.queries_Q.split(BLOCK), self._ranks_QR.split(BLOCK), strict=True):
            query_M, hit_M = (ranks_QR <= depth).nonzero(as_tuple=True)
            relevant_QK = torch.zeros(len(queries_Q), depth, dtype=torch.bool, device=queries_Q.device)
            relevant_QK[query_M, ranks_QR[query_M, hit_M].long() - 1] = True
            yield queries_Q, relevant_QK

    def hit_ranks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield blocks as :meth:`Gallery.hit_ranks`."""
        yield self.queries_Q, self._ranks_QR

    @cached_property  # of the whole ranking, which takes long, and several metrics need
    def _ranks_QR(self) -> torch.Tensor:
        most = int(self._gallery.positives_N[self.queries_Q].max())
        ranks = []
        for queries_Q, exact_QG in self._gallery.similarities(self.queries_Q):
            distances_QG = _distances(exact_QG) / self._furthest_N[queries_Q][:, None]
            jaccard_QG = torch.from_numpy(np.stack([self._jaccard(query) for query in queries_Q.tolist()]))
            final_QG = (1 - LAMBDA) * jaccard_QG.to(distances_QG.device) + LAMBDA * distances_QG
            relevant_QK = self._gallery.ordered(queries_Q, (-final_QG * GRID).round(), self._gallery.longest)
            ranks.append(ranks_of_hits(relevant_QK, most))
        return torch.cat(ranks)

    def _jaccard(self, query: int) -> np.ndarray:
        """Return the Jaccard distance of a query and each gallery image, float64 [G]; rows of V sum to 1."""
        row = self._weights_NN[query]
        others = self._inverted_NG[row.indices]
        shared = np.minimum(others.data, np.repeat(row.data, np.diff(others.indptr)))
        smaller_G = np.bincount(others.indices, weights=shared, minlength=others.shape[1])
        return 1 - smaller_G / (2 - smaller_G)


def _distances(exact: torch.Tensor) -> torch.Tensor:
    """Return squared Euclidean distances of unit vectors from similarities in steps of 1 / GRID."""
    return (2 - 2 * exact / GRID).clamp(min=0)


def _sparse(rows: np.ndarray, columns: np.ndarray, size: int) -> "csr_matrix":
    from scipy.sparse import csr_matrix  # late: only re-ranking needs it

    return csr_matrix((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=(size, size))


def _adjacency(ranked_NK: np.ndarray) -> "csr_matrix":
    """Return the neighbours as a matrix of zeros and ones."""
    size, k = ranked_NK.shape
    return _sparse(np.repeat(np.arange(size), k), ranked_NK.ravel(), size)


def _reciprocal(ranked_NK: np.ndarray) -> "csr_matrix":
    """Return R: the neighbours of which an image is a neighbour, too."""
    adjacency_NN = _adjacency(ranked_NK)
    return adjacency_NN.multiply(adjacency_NN.T).tocsr()
