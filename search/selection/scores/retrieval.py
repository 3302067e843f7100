"""How a model ranks the test images: neighbours, curves and a few embeddings, computed where all embeddings are.

Shapes: N test images, D embedding, Q queries of a block, K ranks, L recall levels, B bins.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from search.selection.scores.retrieval_file import EDGES, LEVELS, MOST_NEIGHBOURS, MOST_RANKED, RANKS, RetrievalFile
from search.selection.scores.sample import map_images, sampled_queries
from trainables.metrics.nearest import full_float32
from trainables.metrics.ranking import Gallery

_BLOCK_PAIRS = 2**24


def retrieval_of(
    embeddings_ND: torch.Tensor, labels_N: torch.Tensor, keys: Sequence[str], class_names: Sequence[str]
) -> RetrievalFile:
    """What is kept of a model with these embeddings; ``labels_N`` are positions in ``class_names``."""
    labels_N = labels_N.to(embeddings_ND.device)
    gallery = Gallery(embeddings_ND, labels_N)
    queries_Q = sampled_queries(keys, MOST_NEIGHBOURS)
    ranked_Q = sampled_queries(keys, MOST_RANKED)
    sample_S = map_images(keys, labels_N.cpu().numpy(), class_names)
    neighbours_QK = gallery.neighbours(_on(queries_Q, embeddings_ND), RANKS)
    unit_ND = torch.nn.functional.normalize(embeddings_ND.float())
    same_B, other_B = _pairs(unit_ND, labels_N, _on(ranked_Q, embeddings_ND))
    return RetrievalFile(
        queries_Q=queries_Q,
        neighbours_QK=neighbours_QK.cpu().numpy().astype(np.int32),
        sample_S=sample_S,
        embeddings_SD=unit_ND[_on(sample_S, unit_ND)].cpu().numpy().astype(np.float16),
        ranked_Q=ranked_Q,
        precision_L=_precision(gallery, _on(ranked_Q, embeddings_ND)),
        same_B=same_B,
        other_B=other_B,
    )


def _on(rows: NDArray[np.int32], like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(rows).long().to(like.device)


def _precision(gallery: Gallery, queries_Q: torch.Tensor) -> NDArray[np.float64]:
    """The mean over queries of the interpolated precision at each recall level r: the highest P@i with recall@i ≥ r.

    Queries without another image of their class have no recall and are left out (Manning, Raghavan and Schütze,
    Introduction to Information Retrieval, 2008, section 8.4).
    """
    total_L, counted = np.zeros(len(LEVELS)), 0
    for _, relevant_QK in gallery.whole_relevance(queries_Q):
        for hits in (row_K.nonzero().flatten() for row_K in relevant_QK.cpu()):
            if positives := len(hits):
                precision_R = np.arange(1, positives + 1) / (hits.numpy() + 1)
                highest_R = np.maximum.accumulate(precision_R[::-1])[::-1]
                # the hit at which a level is reached: the first whose recall is not below it, but for rounding
                reached_L = np.ceil(LEVELS * positives - 1e-9).astype(int).clip(min=1) - 1
                total_L += highest_R[reached_L]
                counted += 1
    return total_L / counted if counted else np.full(len(LEVELS), np.nan)


def _pairs(
    unit_ND: torch.Tensor, labels_N: torch.Tensor, queries_Q: torch.Tensor
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many pairs of a query and another image have which cosine similarity, of one class and of two."""
    bins = len(EDGES) - 1
    counts_2B = torch.zeros(2 * bins, dtype=torch.int64, device=unit_ND.device)
    for block_Q in queries_Q.split(max(_BLOCK_PAIRS // len(unit_ND), 1)):
        with full_float32():
            cosine_QN = unit_ND[block_Q] @ unit_ND.T
        bin_QN = ((cosine_QN + 1) * (bins / 2)).long().clamp_(0, bins - 1)
        bin_QN += bins * (labels_N[block_Q][:, None] != labels_N)
        # a query is no pair with itself
        bin_QN.scatter_(1, block_Q[:, None], 2 * bins)
        counts_2B += torch.bincount(bin_QN.flatten(), minlength=2 * bins + 1)[:-1]
    same_B, other_B = counts_2B.cpu().numpy().reshape(2, bins)
    return same_B, other_B
