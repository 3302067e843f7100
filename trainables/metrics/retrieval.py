"""Retrieval metrics of each query's ranking; :mod:`trainables.metrics.evaluation` averages them over queries.

The examples are for the ranking [1, 0, 1, 0] (1 is an image of the query's class) with R = 2.

Shapes: Q queries, K ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Relevance of each ranked image [Q, K], and the number R of relevant images [Q]."""

    relevant_QK: torch.Tensor
    positives_Q: torch.Tensor

    @cached_property
    def hits_QK(self) -> torch.Tensor:
        """Number of relevant images among the first i."""
        return self.relevant_QK.cumsum(1)

    @cached_property
    def precision_at_hits_QK(self) -> torch.Tensor:
        """P@i · rel_i in float64."""
        return torch.where(self.relevant_QK, self.hits_QK / _ranks(self.relevant_QK), 0.0)


def _ranks(like_QK: torch.Tensor) -> torch.Tensor:
    return torch.arange(1, like_QK.shape[1] + 1, dtype=torch.float64, device=like_QK.device)


def _per_positive(total_Q: torch.Tensor, ranking: Ranking) -> torch.Tensor:
    """Return ``total_Q`` / R, 0 if the class has no other image."""
    return total_Q / ranking.positives_Q.clamp(min=1)


def recall_at_k(ranking: Ranking, k: int) -> torch.Tensor:
    """Return 1 if any of the k nearest is relevant, else 0. Example: recall_at_1 = 1."""
    return (ranking.hits_QK[:, k - 1] > 0).double()


def precision_at_k(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the relevant fraction of the k nearest. Example: precision_at_4 = 2/4."""
    return ranking.hits_QK[:, k - 1].double() / k


def map_at_k(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the sum of precisions at hits among the k nearest, / k. Example: map_at_4 = (1/1 + 2/3)/4 = .417."""
    return ranking.precision_at_hits_QK[:, :k].sum(1) / k


def ndcg_at_k(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the discounted cumulative gain of the k nearest, / that of the ideal ranking.

    Example: ndcg_at_4 = (1/log2 2 + 1/log2 4)/(1/log2 2 + 1/log2 3) = .920.
    """
    gains_K = 1 / (_ranks(ranking.relevant_QK)[:k] + 1).log2()
    ideal_K = torch.cat((gains_K.new_zeros(1), gains_K.cumsum(0)))
    dcg_Q = (ranking.relevant_QK[:, :k] * gains_K).sum(1)
    return dcg_Q / ideal_K[ranking.positives_Q.clamp(1, k)]


def map_at_r(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the sum of precisions at hits among the R nearest, / R. Example: (1/1)/2 = .5."""
    within_QK = _ranks(ranking.relevant_QK) <= ranking.positives_Q[:, None]
    return _per_positive((ranking.precision_at_hits_QK * within_QK).sum(1), ranking)


def r_precision(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the relevant fraction of the R nearest. Example: 1/2."""
    last_Q1 = (ranking.positives_Q - 1).clamp(min=0)[:, None]
    hits_Q = ranking.hits_QK.gather(1, last_Q1)[:, 0] * (ranking.positives_Q > 0)
    return _per_positive(hits_Q.double(), ranking)


Score = Callable[[Ranking, int], torch.Tensor]

SCORES: dict[str, Score] = {
    "recall_at_k": recall_at_k,
    "precision_at_k": precision_at_k,
    "map_at_k": map_at_k,
    "ndcg_at_k": ndcg_at_k,
    "map_at_r": map_at_r,
    "r_precision": r_precision,
}
"""The metrics of the first ranks; formulas are in :mod:`trainables.metrics.table`."""


def average_precision(ranks_QR: torch.Tensor, positives_Q: torch.Tensor) -> torch.Tensor:
    """Return the sum of precisions at all hits, / R, whose mean is ``map``. Example: (1/1 + 2/3)/2 = .833.

    ``ranks_QR`` are the ranks of the relevant images, ascending, and infinite where there are fewer.
    """
    return (_ranks(ranks_QR) / ranks_QR).sum(1) / positives_Q.clamp(min=1)
