"""Margin: pairs on the wrong side of a learned boundary, or too near it.

Shapes: B batch, D embedding, T triplets.
"""

from typing import Any

import torch
from torch import nn

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.mining import distance_weighted
from trainables.losses.operations import REDUCTIONS, Reduction, cosines, reduced, same_and_different
from trainables.losses.used import Used
from trainables.mistakes import raise_if_any

DISTANCES = ("euclidean", "similarity")
MINING = ("distance_weighted", "all")


class Margin(Loss):
    """Σ over pairs of [margin + I·(D_ij − beta)]₊, I = +1 for samples of a class and −1 for those of two.

    D = √(2 − 2S) (``distance="euclidean"``), or −S against −beta (``distance="similarity"``). Mining "all" sums
    every pair i < j; "distance_weighted" sums each anchor with each positive and with a negative drawn for it,
    where the paper's code leaves pairs of loss 0 out of the mean and this keeps them. The boundary ``beta`` is
    learned. Source: Wu et al., Sampling Matters in Deep Embedding Learning; Psomas, Metric Learning: A Deep Dive,
    eq. 2.23 (where a printed I of 0 leaves negatives without a gradient) and Table 4.
    """

    beta_lr = 5e-5  # Psomas, Table 4

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float = 0.5,
        beta: float = 1.2,
        distance: str = "euclidean",
        mining: str = "distance_weighted",
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *real("beta", beta, at_least=-2, at_most=2),
                *choice("distance", distance, DISTANCES),
                *choice("mining", mining, MINING),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.distance, self.mining, self.reduction = margin, distance, mining, reduction
        self.beta = nn.Parameter(torch.tensor(float(beta)))
        self._mine = distance_weighted(embedding_dim)
        self.static_shapes = mining == "all"

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """Beta, at its own learning rate and without decay, which would pull the boundary to 0."""
        return [{"params": [self.beta], "lr": self.beta_lr, "weight_decay": 0.0}]

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        beyond_BB = self._beyond(similarities_BB)
        if self.mining == "all":
            pairs = len(labels_B) * (len(labels_B) - 1) // 2
            self.used = Used("pairs", pairs)
            terms_BB = (self.margin + torch.where(same_BB, beyond_BB, -beyond_BB)).relu()
            return reduced(terms_BB.triu(1).sum(), pairs, self.reduction)
        anchor_T, positive_T, negative_T = self._mine(similarities_BB.detach(), same_BB, different_BB)
        self.used = Used("triplets", len(anchor_T))
        pull_T = (self.margin + beyond_BB[anchor_T, positive_T]).relu()
        push_T = (self.margin - beyond_BB[anchor_T, negative_T]).relu()
        return reduced((pull_T + push_T).sum(), 2 * len(anchor_T), self.reduction)

    def _beyond(self, similarities_BB: torch.Tensor) -> torch.Tensor:
        """How far apart two samples are beyond the boundary; negative within it."""
        if self.distance == "similarity":
            return self.beta - similarities_BB
        # equal embeddings: the root has no gradient at 0, and rounding may go below
        floor = torch.finfo(similarities_BB.dtype).eps
        return (2 - 2 * similarities_BB).clamp(min=floor).sqrt() - self.beta
