"""Lifted structure: an anchor's positives against its negatives, each as a soft maximum.

Shapes: B batch, D embedding.
"""

import torch

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.mining import informative_pairs
from trainables.losses.operations import (
    REDUCTIONS,
    Reduction,
    cosines,
    masked_logsumexp,
    reduced,
    same_and_different,
)
from trainables.losses.used import Used
from trainables.mistakes import raise_if_any

MINING = ("all", "hard")
EPSILON = 0.1


class LiftedStructure(Loss):
    """Σ_i [log Σ_{p∈P_i} e^{margin−S_ip} + log Σ_{n∈N_i} e^{S_in}]₊.

    An anchor without a positive or without a negative gives 0; ``reduction="mean"`` divides by all anchors.

    Mining "all" sums every pair, as eq. 2.21; "hard" the informative ones (:func:`informative_pairs`, epsilon 0.1).
    Psomas, Table 5, has "hard" here and for Multi-Similarity, where it means those pairs. The code of that loss's
    authors (Deep_Metric) mines them for both losses, and that of Sampling Wisely for this one, with this epsilon.
    Source: Psomas, Metric Learning: A Deep Dive, eq. 2.21 and Tables 4 and 5.
    """

    static_shapes = True

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float = 0.5,
        mining: str = "all",
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *choice("mining", mining, MINING),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.mining, self.reduction = margin, mining, reduction

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        if self.mining == "hard":
            same_BB, different_BB = informative_pairs(similarities_BB, same_BB, different_BB, EPSILON)
        both_B1 = same_BB.any(1, keepdim=True) & different_BB.any(1, keepdim=True)
        self.used = Used("pairs", (both_B1 & (same_BB | different_BB)).sum())
        pull_B = masked_logsumexp(self.margin - similarities_BB, same_BB, 1)
        push_B = masked_logsumexp(similarities_BB, different_BB, 1)
        return reduced((pull_B + push_B).relu().sum(), len(labels_B), self.reduction)
