"""SoftTriple: a softmax over classes of several proxies each.

Shapes: B batch, D embedding, C classes.
"""

import torch
from torch.nn.functional import cross_entropy

from trainables.losses.domains import choice
from trainables.losses.multi_proxy import MultiProxyLoss
from trainables.losses.operations import REDUCTIONS, Reduction


class SoftTriple(MultiProxyLoss):
    """Σ_i −log e^{scale(S_iy−margin)} / (e^{scale(S_iy−margin)} + Σ_{c≠y} e^{scale·S_ic}) + tau·R.

    S and R as in :class:`MultiProxyLoss`; y is the sample's class. Saeki et al., eq. 4, and Psomas, eq. 2.30, print
    the sum over the samples; by default it is their mean (:data:`Reduction`). R is an average either way, so beside
    the mean tau·R weighs B times more than in eq. 4. SoftTriple's own code has the mean, with the default's tau.
    Source: Saeki et al., Multi Proxy Anchor Family Loss, eq. 1-4; scale from Psomas, Table 4.
    """

    static_shapes = True

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        proxies_per_class: int = 10,
        margin: float = 0.1,
        scale: float = 20.0,
        gamma: float = 0.1,
        tau: float = 0.2,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(
            num_classes=num_classes,
            embedding_dim=embedding_dim,
            proxies_per_class=proxies_per_class,
            margin=margin,
            scale=scale,
            gamma=gamma,
            tau=tau,
            problems=choice("reduction", reduction, REDUCTIONS),
        )
        self.reduction = reduction

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> torch.Tensor:
        """Uniform in ±1/√(C·K), as in the code of SoftTriple's authors (idstcv/SoftTriple)."""
        bound = (num_classes * proxies_per_class) ** -0.5
        return torch.empty(num_classes, proxies_per_class, embedding_dim).uniform_(-bound, bound)

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC, regulariser = self.similarities_and_regulariser(embeddings_BD)
        own_B1 = labels_B[:, None]
        margins_B1 = torch.zeros_like(own_B1, dtype=similarities_BC.dtype) - self.margin
        shifted_BC = similarities_BC.scatter_add(1, own_B1, margins_B1)
        return cross_entropy(self.scale * shifted_BC, labels_B, reduction=self.reduction) + regulariser
