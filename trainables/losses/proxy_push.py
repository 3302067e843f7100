"""Proxy-Anchor's pull towards proxies, and a push of the proxies from each other.

Shapes: B batch, D embedding, C classes.
"""

import torch

from trainables.losses.base import ProxyLoss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.operations import log1p_sum_exp, promoted, unit
from trainables.losses.proxy_anchor import pull_to_proxies
from trainables.mistakes import raise_if_any

SIMILARITIES = ("proxy", "data")


class ProxyPush(ProxyLoss):
    """mean_{W⁺} log(1 + Σ_{x∈X_w⁺} e^{−scale(S−margin)}) + mean_W log(1 + Σ_{w⁻} e^{scale(s(w,w⁻)+margin)}).

    w⁻ is every other class's proxy; s(w,w⁻) is w·w⁻ (``similarity="proxy"``) or Σ_x (w·x)(x·w⁻) over the batch
    (``similarity="data"``), a sum that grows with the batch. Source: Psomas, Metric Learning: A Deep Dive,
    eq. 6.1 and 6.2, which gives neither margin nor scale nor how the proxies begin: they are Proxy-Anchor's.
    """

    static_shapes = True

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        similarity: str = "proxy",
        margin: float = 0.1,
        scale: float = 32.0,
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *choice("similarity", similarity, SIMILARITIES),
                *real("margin", margin, at_least=0),
                *real("scale", scale, above=0),
            ]
        )
        super().__init__(num_classes=num_classes, embedding_dim=embedding_dim)
        self.similarity, self.margin, self.scale = similarity, margin, scale

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        proxies_CD = unit(promoted(self.proxies[:, 0]))
        similarities_BC = self.similarities(embeddings_BD)
        vectors_CV = proxies_CD if self.similarity == "proxy" else similarities_BC.T
        between_CC = vectors_CV @ vectors_CV.T
        itself_CC = torch.eye(len(proxies_CD), dtype=torch.bool, device=proxies_CD.device)
        push_CC = (self.scale * (between_CC + self.margin)).masked_fill(itself_CC, -torch.inf)
        pull = pull_to_proxies(similarities_BC, labels_B, margin=self.margin, scale=self.scale)
        return pull + log1p_sum_exp(push_CC, 1).mean()
