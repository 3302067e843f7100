"""Lifted structure: an anchor's positives against its negatives, each as a soft maximum.

Shapes: B batch, D embedding.
"""

import torch

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.operations import (
    REDUCTIONS,
    Reduction,
    cosines,
    masked_logsumexp,
    reduced,
    same_and_different,
)
from trainables.mistakes import raise_if_any


class LiftedStructure(Loss):
    """Σ_i [log Σ_{p∈P_i} e^{margin−S_ip} + log Σ_{n∈N_i} e^{S_in}]₊.

    An anchor without a positive or without a negative gives 0; ``reduction="mean"`` divides by all anchors.
    Source: Psomas, Metric Learning: A Deep Dive, eq. 2.21 and Table 4.
    """

    def __init__(
        self, *, num_classes: int, embedding_dim: int, margin: float = 0.5, reduction: Reduction = "mean"
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.reduction = margin, reduction

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        pull_B = masked_logsumexp(self.margin - similarities_BB, same_BB, 1)
        push_B = masked_logsumexp(similarities_BB, different_BB, 1)
        return reduced((pull_B + push_B).relu().sum(), len(labels_B), self.reduction)
