"""Retrieval: the queries and their galleries, and the metrics of each query's ranking.

:mod:`trainables.metrics.evaluation` averages the metrics over queries. Where similarities tie, a metric is its expected
value over the random orders of the tied images, in closed form (McSherry and Najork, Computing Information Retrieval
Performance Measures Efficiently in the Presence of Tied Scores, ECIR 2008), so it does not depend on the order of the
images. The examples are for the ranking [1, 0, 1, 0] (1 is an image of the query's class) with R = 2; "tied" if all
four have one similarity.

Shapes: N images, Q queries, K ranks or images of the gallery, R relevant images.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from trainables.common.errors import raise_if_any


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The ranks 1 … K of each query's gallery, expected over the orders of ties.

    Attributes:
        relevant_QK: probability that the image at rank i is relevant.
        found_QK: expected number of relevant images among the first i, given that the one at rank i is relevant.
        missed_QK: probability that the image at rank i is not relevant, given that none before it is.
        positives_Q: number R of relevant images.
    """

    relevant_QK: Tensor
    found_QK: Tensor
    missed_QK: Tensor
    positives_Q: Tensor

    @classmethod
    def of(cls, relevant_QK: Tensor, positives_Q: Tensor) -> "Ranking":
        """Return a ranking without ties from the relevance of each rank, bool [Q, K]."""
        return cls(
            relevant_QK=relevant_QK, found_QK=relevant_QK.cumsum(1), missed_QK=~relevant_QK, positives_Q=positives_Q
        )

    @classmethod
    def of_ties(cls, keys_QK: Tensor, relevant_QK: Tensor, positives_Q: Tensor, ranks: int) -> "Ranking":
        """Return the first ``ranks`` by descending key; a key that is at most 1 below the one before ties with it.

        Each of n tied images of which r are relevant has an equal chance of every place in the group.
        """
        keys_QK, order_QK = keys_QK.sort(descending=True)
        relevant_QK = relevant_QK.gather(1, order_QK)
        tied_QK = pad(keys_QK[:, :-1] - keys_QK[:, 1:] <= 1, (1, 0))
        columns_K = torch.arange(tied_QK.shape[1], device=tied_QK.device)
        first_QK = torch.where(tied_QK, 0, columns_K).cummax(1).values
        zeros_QK = torch.zeros_like(first_QK, dtype=torch.float64)
        sizes_QK = zeros_QK.scatter_add(1, first_QK, zeros_QK + 1).gather(1, first_QK)
        hits_QK = zeros_QK.scatter_add(1, first_QK, relevant_QK.double()).gather(1, first_QK)
        place_QK = columns_K - first_QK
        before_QK = (relevant_QK.cumsum(1) - relevant_QK.long()).gather(1, first_QK)
        return cls(
            relevant_QK=(hits_QK / sizes_QK)[:, :ranks],
            found_QK=(before_QK + 1 + place_QK * (hits_QK - 1) / (sizes_QK - 1).clamp(min=1))[:, :ranks],
            missed_QK=((sizes_QK - hits_QK - place_QK).clamp(min=0) / (sizes_QK - place_QK))[:, :ranks],
            positives_Q=positives_Q,
        )

    @cached_property
    def precision_at_hits_QK(self) -> Tensor:
        """P@i · rel_i in float64."""
        return self.relevant_QK * self.found_QK / _ranks(self.relevant_QK)

    def over_r(self, values_QK: Tensor) -> Tensor:
        """Return the sum of the first R values of each query, / R; 0 if the class has no other image."""
        within_QK = _ranks(values_QK) <= self.positives_Q[:, None]
        return (values_QK * within_QK).sum(1).double() / self.positives_Q.clamp(min=1)


def _ranks(like_QK: Tensor) -> Tensor:
    return torch.arange(1, like_QK.shape[1] + 1, dtype=torch.float64, device=like_QK.device)


def recall_at_k(ranking: Ranking, k: int) -> Tensor:
    """Return the probability that any of the k nearest is relevant. Example: recall_at_1 = 1; tied 1/2."""
    return 1 - ranking.missed_QK[:, :k].double().prod(1)


def precision_at_k(ranking: Ranking, k: int) -> Tensor:
    """Return the relevant fraction of the k nearest. Example: precision_at_1 = 1; tied 1/2."""
    return ranking.relevant_QK[:, :k].sum(1).double() / k


def map_at_k(ranking: Ranking, k: int) -> Tensor:
    """Return the sum of precisions at hits among the k nearest, / k. Example: map_at_4 = (1/1 + 2/3)/4 = .417."""
    return ranking.precision_at_hits_QK[:, :k].sum(1) / k


def ndcg_at_k(ranking: Ranking, k: int) -> Tensor:
    """Return the discounted cumulative gain of the k nearest, / that of the ideal ranking.

    Example: ndcg_at_4 = (1/log2 2 + 1/log2 4)/(1/log2 2 + 1/log2 3) = .920.
    """
    relevant_QK = ranking.relevant_QK[:, :k]
    gains_K = 1 / (_ranks(relevant_QK) + 1).log2()
    ideal_K = torch.cat((gains_K.new_zeros(1), gains_K.cumsum(0)))
    dcg_Q = (relevant_QK * gains_K).sum(1)
    return dcg_Q / ideal_K[ranking.positives_Q.clamp(max=k)].clamp(min=1)


def map_at_r(ranking: Ranking, k: int) -> Tensor:
    """Return the sum of precisions at hits among the R nearest, / R. Example: (1/1)/2 = .5; tied 5/12."""
    return ranking.over_r(ranking.precision_at_hits_QK)


def r_precision(ranking: Ranking, k: int) -> Tensor:
    """Return the relevant fraction of the R nearest. Example: 1/2, tied or not."""
    return ranking.over_r(ranking.relevant_QK)


SCORES: dict[str, Callable[[Ranking, int], Tensor]] = {
    "recall_at_k": recall_at_k,
    "precision_at_k": precision_at_k,
    "map_at_k": map_at_k,
    "ndcg_at_k": ndcg_at_k,
    "map_at_r": map_at_r,
    "r_precision": r_precision,
}
"""The metrics of the first ranks; formulas are in :mod:`trainables.metrics`."""


def average_precision(before_QR: Tensor, tied_QR: Tensor, positives_Q: Tensor) -> Tensor:
    """Return the sum of precisions at all hits, / R, whose mean is ``map``. Example: (1/1 + 2/3)/2 = .833.

    The relevant images of a query are given by the numbers of images that are more similar, ascending and infinite
    beyond the last one, and that are as similar, itself included, both float64.

    The precision at a hit is expected over the n places of its group of ties behind t images, h of them relevant: the
    mean of (h + 1 + (p − 1)(r − 1)/(n − 1)) / (t + p) over p, for r relevant ones in the group.
    """
    earlier_QR, until_QR = (  # numbers of relevant images before each hit's group, and to its end
        torch.searchsorted(before_QR, before_QR, right=right) for right in (False, True)
    )
    hits_QR, next_QR = until_QR - earlier_QR, before_QR + 1
    # Σ_p 1/(t + p)
    harmonic_QR = torch.where(tied_QR == 1, 1 / next_QR, (next_QR + tied_QR).digamma() - next_QR.digamma())
    share_QR = (hits_QR - 1) / (tied_QR - 1).clamp(min=1)
    total_QR = (earlier_QR + 1) * harmonic_QR + share_QR * (tied_QR - next_QR * harmonic_QR)
    return torch.where(next_QR.isinf(), 0.0, total_QR / tied_QR).sum(1) / positives_Q.clamp(min=1)


# The images that are queries, and the gallery that each of them is ranked against.


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalProtocol:
    """The queries and the gallery among N images, both bool [N].

    An image is never in its own gallery. With ``cameras_N`` (int64) a query also ignores the images of its class that
    its own camera took, as in Market-1501 (Zheng et al., Scalable Person Re-identification, 2015): they are neither
    hits nor misses.
    """

    queries_N: Tensor
    gallery_N: Tensor
    cameras_N: Tensor | None = None

    @classmethod
    def first(cls, queries: int, images: int) -> "RetrievalProtocol":
        """Return the protocol in which the first ``queries`` of all ``images`` are ranked against all others."""
        every_N = torch.ones(images, dtype=torch.bool)
        return cls(queries_N=torch.arange(images) < queries, gallery_N=every_N)

    def check(self, images: int) -> None:
        """Raise :class:`InvalidInput` unless it is of this number of ``images``, with a query and a gallery."""
        given = {"queries": self.queries_N, "gallery": self.gallery_N, "cameras": self.cameras_N}
        sentences = [
            f"{name} must have one entry for each of {images} embeddings; the shape is {tuple(of_N.shape)}."
            for name, of_N in given.items()
            if of_N is not None and of_N.shape != (images,)
        ]
        if not sentences and not (self.queries_N.any() and self.gallery_N.any()):
            sentences = ["There is no query, or no item in the gallery: mark some items as each."]
        raise_if_any(sentences)

    def __getitem__(self, rows: Tensor) -> "RetrievalProtocol":
        """Return the protocol of some of the images."""
        return self._changed(lambda of_N: of_N[rows])

    def with_further(self, images: int) -> "RetrievalProtocol":
        """Return the protocol with ``images`` more at the end, which are in the gallery only."""
        added = (0, images)
        cameras_N = None if self.cameras_N is None else pad(self.cameras_N, added, value=-1)
        return RetrievalProtocol(
            queries_N=pad(self.queries_N, added), gallery_N=pad(self.gallery_N, added, value=True), cameras_N=cameras_N
        )

    def to(self, device: torch.device) -> "RetrievalProtocol":
        return self._changed(lambda of_N: of_N.to(device))

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "RetrievalProtocol":
        changed: Any = {name: None if of_N is None else change(of_N) for name, of_N in vars(self).items()}
        return RetrievalProtocol(**changed)

    def sightings(self, labels_N: Tensor) -> Tensor:
        """Return numbers [N] that are equal for two images of which one as a query ignores the other."""
        if self.cameras_N is None:
            return torch.arange(len(labels_N), device=labels_N.device)
        class_N, camera_N = (of_N.unique(return_inverse=True)[1] for of_N in (labels_N, self.cameras_N))
        return class_N * (int(camera_N.max()) + 1) + camera_N

    def counts(self, labels_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return R [N], the number of relevant images in each image's gallery, and the number that it ignores [N]."""
        groups = labels_N.unique(return_inverse=True)[1], self.sightings(labels_N)
        of_class_N, ignored_N = (
            group_N[self.gallery_N].bincount(minlength=int(group_N.max()) + 1)[group_N] for group_N in groups
        )
        return of_class_N - ignored_N, ignored_N
