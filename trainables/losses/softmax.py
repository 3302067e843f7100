"""Softmax over the cosine similarities to one proxy a class.

Shapes: B batch, D embedding, C classes.
"""

import torch
from torch.nn.functional import cross_entropy

from trainables.losses.base import ProxyLoss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.operations import REDUCTIONS, Reduction
from trainables.mistakes import raise_if_any


class Softmax(ProxyLoss):
    """Σ_i −log e^{scale·S_iy} / Σ_c e^{scale·S_ic}, S_ic = w_c·x_i and y the sample's class; no bias.

    Source: Psomas, Metric Learning: A Deep Dive, eq. 2.26.
    """

    def __init__(
        self, *, num_classes: int, embedding_dim: int, scale: float = 1.0, reduction: Reduction = "mean"
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("scale", scale, above=0),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__(num_classes=num_classes, embedding_dim=embedding_dim)
        self.scale, self.reduction = scale, reduction

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC = self.similarities(embeddings_BD)
        return cross_entropy(self.scale * similarities_BC, labels_B, reduction=self.reduction)
