"""Triplet: an anchor's positive must be more similar than its negative, by a margin.

Shapes: B batch, D embedding, A anchors, T triplets.
"""

import torch

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.mining import MINERS
from trainables.losses.operations import REDUCTIONS, Reduction, cosines, reduced, same_and_different
from trainables.losses.used import Used
from trainables.mistakes import raise_if_any


class Triplet(Loss):
    """Σ over the triplets that ``mining`` finds of [S_an − S_ap + margin]₊.

    ``reduction="mean"`` divides by the number of triplets found, those of loss 0 too. Source: Psomas, Metric
    Learning: A Deep Dive, eq. 2.17 to 2.20 and Table 4.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float = 0.1,
        mining: str = "semi_hard",
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *choice("mining", mining, MINERS),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.reduction = margin, reduction
        self._mine = MINERS[mining](embedding_dim)

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        terms_T = self.terms(cosines(embeddings_BD), *same_and_different(labels_B))
        self.used = Used("triplets", len(terms_T))
        return reduced(terms_T.sum(), len(terms_T), self.reduction)

    def terms(self, similarities_AB: torch.Tensor, same_AB: torch.Tensor, different_AB: torch.Tensor) -> torch.Tensor:
        """The loss of each triplet that is mined for some anchors, whose positives and negatives two masks tell."""
        anchor_T, positive_T, negative_T = self._mine(similarities_AB.detach(), same_AB, different_AB)
        return (similarities_AB[anchor_T, negative_T] - similarities_AB[anchor_T, positive_T] + self.margin).relu()
