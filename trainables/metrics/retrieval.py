"""Retrieval metrics of each query's ranking; :mod:`trainables.metrics.evaluation` averages them over queries.

Where similarities tie, a metric is its expected value over the random orders of the tied images, in closed form
(McSherry and Najork, Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores,
ECIR 2008), so it does not depend on the order of the images. The examples are for the ranking [1, 0, 1, 0] (1 is an
image of the query's class) with R = 2; "tied" if all four have one similarity.

Shapes: Q queries, K ranks, R relevant images.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The ranks 1 … K of each query's gallery, expected over the orders of ties.

    Attributes:
        relevant_QK: probability that the image at rank i is relevant.
        found_QK: expected number of relevant images among the first i, given that the one at rank i is relevant.
        missed_QK: probability that the image at rank i is not relevant, given that none before it is.
        positives_Q: number R of relevant images.
    """

    relevant_QK: torch.Tensor
    found_QK: torch.Tensor
    missed_QK: torch.Tensor
    positives_Q: torch.Tensor

    @classmethod
    def of(cls, relevant_QK: torch.Tensor, positives_Q: torch.Tensor) -> "Ranking":
        """Return a ranking without ties from the relevance of each rank, bool [Q, K]."""
        return cls(
            relevant_QK=relevant_QK, found_QK=relevant_QK.cumsum(1), missed_QK=~relevant_QK, positives_Q=positives_Q
        )

    @classmethod
    def of_ties(cls, relevant_QK: torch.Tensor, tied_QK: torch.Tensor, positives_Q: torch.Tensor) -> "Ranking":
        """Return a ranking of whole groups of ties; ``tied_QK`` is True where a rank ties with the one before it.

        Each of n tied images of which r are relevant has an equal chance of every place in the group.
        """
        first_QK, sizes_QK = tie_groups(tied_QK)
        place_QK = torch.arange(tied_QK.shape[1], device=tied_QK.device) - first_QK
        hits_QK = torch.zeros_like(sizes_QK).scatter_add_(1, first_QK, relevant_QK.double()).gather(1, first_QK)
        before_QK = (relevant_QK.cumsum(1) - relevant_QK.long()).gather(1, first_QK)
        return cls(
            relevant_QK=hits_QK / sizes_QK,
            found_QK=before_QK + 1 + place_QK * (hits_QK - 1) / (sizes_QK - 1).clamp(min=1),
            missed_QK=(sizes_QK - hits_QK - place_QK).clamp(min=0) / (sizes_QK - place_QK),
            positives_Q=positives_Q,
        )

    def first(self, ranks: int) -> "Ranking":
        """Return the first ``ranks`` of the ranking."""
        return Ranking(
            relevant_QK=self.relevant_QK[:, :ranks],
            found_QK=self.found_QK[:, :ranks],
            missed_QK=self.missed_QK[:, :ranks],
            positives_Q=self.positives_Q,
        )

    @cached_property
    def precision_at_hits_QK(self) -> torch.Tensor:
        """P@i · rel_i in float64."""
        return self.relevant_QK * self.found_QK / _ranks(self.relevant_QK)


def tie_groups(tied_QK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first column of each rank's group of ties, and the number of its images in float64, both [Q, K]."""
    columns_K = torch.arange(tied_QK.shape[1], device=tied_QK.device)
    first_QK = torch.where(tied_QK, 0, columns_K).cummax(1).values
    ones_QK = torch.ones_like(first_QK, dtype=torch.float64)
    return first_QK, torch.zeros_like(ones_QK).scatter_add_(1, first_QK, ones_QK).gather(1, first_QK)


@dataclass(frozen=True, kw_only=True)
class Hits:
    """The relevant images of each query in the whole ranking, most similar first, in float64 [Q, R].

    Attributes:
        before_QR: number of images that are more similar; infinite where a query has fewer than R relevant images.
        tied_QR: number of images that are as similar, itself included.
    """

    before_QR: torch.Tensor
    tied_QR: torch.Tensor

    @property
    def precision_QR(self) -> torch.Tensor:
        """Expected precision at the rank of each relevant image; 0 where there is none.

        Over the n places of a group behind t images, h of them relevant, the mean of
        (h + 1 + (p − 1)(r − 1)/(n − 1)) / (t + p).
        """
        (earlier_QR, hits_QR), next_QR, size_QR = self._groups, self.before_QR + 1, self.tied_QR
        harmonic_QR = torch.where(
            size_QR == 1, 1 / next_QR, (next_QR + size_QR).digamma() - next_QR.digamma()
        )  # Σ_p 1/(t + p)
        share_QR = (hits_QR - 1) / (size_QR - 1).clamp(min=1)
        total_QR = (earlier_QR + 1) * harmonic_QR + share_QR * (size_QR - next_QR * harmonic_QR)
        return torch.where(next_QR.isinf(), 0.0, total_QR / size_QR)

    @property
    def _groups(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Number of relevant images before each hit's group, and in it."""
        earlier_QR, until_QR = (
            torch.searchsorted(self.before_QR, self.before_QR, right=right) for right in (False, True)
        )
        return earlier_QR, until_QR - earlier_QR


def _ranks(like_QK: torch.Tensor) -> torch.Tensor:
    return torch.arange(1, like_QK.shape[1] + 1, dtype=torch.float64, device=like_QK.device)


def _per_positive(total_Q: torch.Tensor, ranking: Ranking) -> torch.Tensor:
    """Return ``total_Q`` / R, 0 if the class has no other image."""
    return total_Q / ranking.positives_Q.clamp(min=1)


def recall_at_k(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the probability that any of the k nearest is relevant. Example: recall_at_1 = 1; tied 1/2."""
    return 1 - ranking.missed_QK[:, :k].double().prod(1)


def precision_at_k(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the relevant fraction of the k nearest. Example: precision_at_1 = 1; tied 1/2."""
    return ranking.relevant_QK[:, :k].sum(1).double() / k


def map_at_k(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the sum of precisions at hits among the k nearest, / k. Example: map_at_4 = (1/1 + 2/3)/4 = .417."""
    return ranking.precision_at_hits_QK[:, :k].sum(1) / k


def ndcg_at_k(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the discounted cumulative gain of the k nearest, / that of the ideal ranking.

    Example: ndcg_at_4 = (1/log2 2 + 1/log2 4)/(1/log2 2 + 1/log2 3) = .920.
    """
    relevant_QK = ranking.relevant_QK[:, :k]
    gains_K = 1 / (_ranks(relevant_QK) + 1).log2()
    ideal_K = torch.cat((gains_K.new_zeros(1), gains_K.cumsum(0)))
    dcg_Q = (relevant_QK * gains_K).sum(1)
    return dcg_Q / ideal_K[ranking.positives_Q.clamp(max=k)].clamp(min=1)


def map_at_r(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the sum of precisions at hits among the R nearest, / R. Example: (1/1)/2 = .5; tied 5/12."""
    within_QK = _ranks(ranking.relevant_QK) <= ranking.positives_Q[:, None]
    return _per_positive((ranking.precision_at_hits_QK * within_QK).sum(1), ranking)


def r_precision(ranking: Ranking, k: int) -> torch.Tensor:
    """Return the relevant fraction of the R nearest. Example: 1/2, tied or not."""
    within_QK = _ranks(ranking.relevant_QK) <= ranking.positives_Q[:, None]
    return _per_positive((ranking.relevant_QK * within_QK).sum(1).double(), ranking)


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


def average_precision(hits: Hits, positives_Q: torch.Tensor) -> torch.Tensor:
    """Return the sum of precisions at all hits, / R, whose mean is ``map``. Example: (1/1 + 2/3)/2 = .833."""
    return hits.precision_QR.sum(1) / positives_Q.clamp(min=1)
