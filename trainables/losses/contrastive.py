"""Contrastive: samples of a class are drawn together, those of two classes pushed below a margin.

Shapes: B batch, D embedding.
"""

import torch

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.operations import REDUCTIONS, Reduction, cosines, reduced
from trainables.losses.used import Used
from trainables.mistakes import raise_if_any


class Contrastive(Loss):
    """Σ_{i<j} −S_ij for two samples of a class and [S_ij − margin]₊ for samples of two classes.

    The margin is a cosine. Source: Psomas, Metric Learning: A Deep Dive, eq. 2.15 and Table 4.
    """

    static_shapes = True

    def __init__(
        self, *, num_classes: int, embedding_dim: int, margin: float = 0.5, reduction: Reduction = "mean"
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=-1, at_most=1),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.reduction = margin, reduction

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB = labels_B[:, None] == labels_B[None, :]
        terms_BB = torch.where(same_BB, -similarities_BB, (similarities_BB - self.margin).relu())
        pairs = len(labels_B) * (len(labels_B) - 1) // 2
        self.used = Used("pairs", pairs)
        return reduced(terms_BB.triu(1).sum(), pairs, self.reduction)
