"""ArcFace: a softmax whose own class must win by an angle.

Shapes: B batch, D embedding, C classes.
"""

import math

import torch
from torch.nn.functional import cross_entropy

from trainables.losses.base import ProxyLoss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.operations import REDUCTIONS, Reduction
from trainables.mistakes import raise_if_any


class ArcFace(ProxyLoss):
    """Σ_i −log e^{scale·cos(θ_y+margin)} / (e^{scale·cos(θ_y+margin)} + Σ_{c≠y} e^{scale·cos θ_c}).

    θ_c is the angle of the sample and w_c, y its class, the margin in degrees. Where θ_y + margin exceeds 180°,
    the cosine would rise again: there it is cos θ_y − margin·sin(margin), as in ArcFace's own code. The sum over the
    samples is printed; by default it is their mean (:data:`Reduction`), as in that code. Source: Psomas, Metric
    Learning: A Deep Dive, eq. 2.29 and Table 4.
    """

    static_shapes = True

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float = 28.6,
        scale: float = 64.0,
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0, at_most=180),
                *real("scale", scale, above=0),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__(num_classes=num_classes, embedding_dim=embedding_dim)
        self.scale, self.reduction = scale, reduction
        radians = math.radians(margin)
        self._cosine, self._sine = math.cos(radians), math.sin(radians)
        self._drop = radians * self._sine

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> torch.Tensor:
        """N(0, 0.01²), as in the code of ArcFace's authors (InsightFace)."""
        return 0.01 * torch.randn(num_classes, proxies_per_class, embedding_dim)

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        cosines_BC = self.similarities(embeddings_BD)
        own_B1 = labels_B[:, None]
        harder_B1 = self._harder(cosines_BC.gather(1, own_B1))
        return cross_entropy(self.scale * cosines_BC.scatter(1, own_B1, harder_B1), labels_B, reduction=self.reduction)

    def _harder(self, cosine: torch.Tensor) -> torch.Tensor:
        """cos(θ + margin), and the fallback beyond 180°."""
        # cos(θ+m) by the addition theorem: acos has no gradient at ±1, and neither has the sine's root at 0
        sine = (1 - cosine.square()).clamp(min=torch.finfo(cosine.dtype).eps).sqrt()
        shifted = cosine * self._cosine - sine * self._sine
        return torch.where(cosine > -self._cosine, shifted, cosine - self._drop)
