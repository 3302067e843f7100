"""Softmax losses over proxies; equations and defaults are in their rows of ``LOSSES``.

Shapes: B batch, D embedding, C classes.
"""

import math
from typing import Annotated

import torch
from torch.nn.functional import cross_entropy, threshold

from trainables.losses.base import (
    Among,
    Positive,
    ProxyLoss,
    Reduced,
    declared,
    promoted,
)
from trainables.losses.proxies import MultiProxyLoss
from trainables.rules import Bounds

SIMILARITIES = ("cosine", "dot")


@declared("softmax")
class Softmax(ProxyLoss):
    """S_ic is the cosine of w_c and x_i (``similarity="cosine"``) or w_c·x_i (``similarity="dot"``); no bias.

    "dot" normalises neither, as in a network's last layer; it is eq. 2.26 at scale 1, since the thesis normalises only
    in ArcFace. At scale 1 cosines leave every class likely, so the loss stays high: log(1 + (C−1)/e²) or more.
    """

    similarity: Annotated[str, Among(SIMILARITIES)]
    scale: Positive
    reduction: Reduced = "mean"

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> torch.Tensor:
        """Return proxies uniform in ±1/√D, as the weights of torch's linear layer."""
        bound = embedding_dim**-0.5
        return torch.empty(num_classes, proxies_per_class, embedding_dim).uniform_(-bound, bound)

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        if self.similarity == "dot":
            similarities_BC = embeddings_BD @ promoted(self.proxies[:, 0]).T
        else:
            similarities_BC = self.similarities(embeddings_BD)
        return cross_entropy(self.scale * similarities_BC, labels_B, reduction=self.reduction)


@declared("arcface")
class ArcFace(ProxyLoss):
    """θ_c is the angle of the sample to w_c, y the sample's class, and the margin is in degrees.

    Beyond θ_y + margin = 180° the cosine would increase again: there it is replaced by cos θ_y − margin·sin(margin), as
    in ArcFace's own code. The thesis prints the sum over the samples; the default is their mean (:data:`Reduction`), as
    in that code. Defaults are from Psomas, Table 4.
    """

    margin: Annotated[float, Bounds(ge=0, le=180)]
    scale: Positive
    reduction: Reduced = "mean"

    def prepare(self, embedding_dim: int) -> None:
        radians = math.radians(self.margin)
        self._cosine, self._sine = math.cos(radians), math.sin(radians)
        self._drop = radians * self._sine

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> torch.Tensor:
        """Return proxies from N(0, 0.01²), as in the code of ArcFace's authors (InsightFace)."""
        return 0.01 * torch.randn(num_classes, proxies_per_class, embedding_dim)

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        cosines_BC = self.similarities(embeddings_BD)
        own_B1 = labels_B[:, None]
        harder_B1 = self._harder(cosines_BC.gather(1, own_B1))
        return cross_entropy(self.scale * cosines_BC.scatter(1, own_B1, harder_B1), labels_B, reduction=self.reduction)

    def _harder(self, cosine: torch.Tensor) -> torch.Tensor:
        """Return cos(θ + margin), with the replacement beyond 180°."""
        # cos(θ+m) by the addition theorem: acos has no gradient at ±1, nor has the sine's root at 0
        least = torch.finfo(cosine.dtype).eps
        sine = threshold(1 - cosine.square(), least, least).sqrt()
        shifted = cosine * self._cosine - sine * self._sine
        return torch.where(cosine > -self._cosine, shifted, cosine - self._drop)


@declared("soft_triple")
class SoftTriple(MultiProxyLoss):
    """S and R are those of :class:`MultiProxyLoss`; y is the sample's class.

    Saeki et al., eq. 4, and Psomas, eq. 2.30, print the sum over the samples; the default is their mean
    (:data:`Reduction`). R is an average in both cases, so with the mean tau·R weighs B times more than in eq. 4.
    SoftTriple's own code has the mean, with this default of tau. The default scale is from Psomas, Table 4.
    """

    similarity = "softmax"
    reduction: Reduced = "mean"

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> torch.Tensor:
        """Return proxies uniform in ±1/√(C·K), as in the code of SoftTriple's authors (idstcv/SoftTriple)."""
        bound = (num_classes * proxies_per_class) ** -0.5
        return torch.empty(num_classes, proxies_per_class, embedding_dim).uniform_(-bound, bound)

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC, regulariser = self.similarities_and_regulariser(embeddings_BD)
        own_B1 = labels_B[:, None]
        margins_B1 = torch.zeros_like(own_B1, dtype=similarities_BC.dtype) - self.margin
        shifted_BC = similarities_BC.scatter_add_(1, own_B1, margins_B1)
        return cross_entropy(self.scale * shifted_BC, labels_B, reduction=self.reduction) + regulariser
