"""Proxy-NCA: every sample is drawn to its proxy against all others.

Shapes: B batch, D embedding, C classes.
"""

import torch

from trainables.losses.base import ProxyLoss, sizes
from trainables.losses.domains import choice
from trainables.losses.operations import REDUCTIONS, Reduction, reduced
from trainables.mistakes import raise_if_any


class ProxyNCA(ProxyLoss):
    """Σ_i −log e^{S_iy} / Σ_{c≠y} e^{S_ic}, S_ic = w_c·x_i and y the sample's class.

    The sample's own proxy is not in the denominator, so that the loss may be negative. With a single class there
    is no other proxy and no term: the loss is 0. The sum over the samples is printed, and in eq. 2.28 its derivative;
    by default it is their mean (:data:`Reduction`). Source: Psomas, Metric Learning: A Deep Dive, eq. 2.27.
    """

    static_shapes = True

    def __init__(self, *, num_classes: int, embedding_dim: int, reduction: Reduction = "mean") -> None:
        raise_if_any([*sizes(num_classes, embedding_dim), *choice("reduction", reduction, REDUCTIONS)])
        super().__init__(num_classes=num_classes, embedding_dim=embedding_dim)
        self.reduction = reduction

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> torch.Tensor:
        """N(0, 1/D), of a length about 1.

        The authors released no code, and their paper has no initialisation. This is that of the PyTorch code which
        Sampling Wisely follows (dichotomies/proxy-nca): a deviation of 1/8, said to be for length 1, at 64 dimensions.
        """
        return embedding_dim**-0.5 * torch.randn(num_classes, proxies_per_class, embedding_dim)

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC = self.similarities(embeddings_BD)
        if len(self.proxies) == 1:
            return similarities_BC.sum() * 0
        own_B1 = labels_B[:, None]
        own_B = similarities_BC.gather(1, own_B1)[:, 0]
        others_B = similarities_BC.scatter(1, own_B1, -torch.inf).logsumexp(1)
        return reduced((others_B - own_B).sum(), len(labels_B), self.reduction)
