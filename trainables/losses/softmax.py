"""Softmax over the similarities to one proxy a class.

Shapes: B batch, D embedding, C classes.
"""

import torch
from torch.nn.functional import cross_entropy

from trainables.losses.base import ProxyLoss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.operations import REDUCTIONS, Reduction, promoted
from trainables.mistakes import raise_if_any

SIMILARITIES = ("cosine", "dot")


class Softmax(ProxyLoss):
    """Σ_i −log e^{scale·S_iy} / Σ_c e^{scale·S_ic}, y the sample's class; no bias.

    S_ic is the cosine of w_c and x_i (``similarity="cosine"``), or w_c·x_i with both as long as they are
    (``similarity="dot"``), as a network's last layer has it. Eq. 2.26 is the latter at scale 1: only ArcFace is said to
    normalise both. At scale 1 cosines leave every class likely, so the loss stays high: log(1 + (C−1)/e²) or more.
    Source: Psomas, Metric Learning: A Deep Dive, eq. 2.26.
    """

    static_shapes = True

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        similarity: str = "cosine",
        scale: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *choice("similarity", similarity, SIMILARITIES),
                *real("scale", scale, above=0),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__(num_classes=num_classes, embedding_dim=embedding_dim)
        self.similarity, self.scale, self.reduction = similarity, scale, reduction

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> torch.Tensor:
        """Uniform in ±1/√D: those of torch's linear layer, which a softmax is usually made of."""
        bound = embedding_dim**-0.5
        return torch.empty(num_classes, proxies_per_class, embedding_dim).uniform_(-bound, bound)

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        if self.similarity == "dot":
            similarities_BC = embeddings_BD @ promoted(self.proxies[:, 0]).T
        else:
            similarities_BC = self.similarities(embeddings_BD)
        return cross_entropy(self.scale * similarities_BC, labels_B, reduction=self.reduction)
