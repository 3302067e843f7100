"""Proxy-Anchor: every proxy pulls the batch's samples of its class and pushes all others.

Shapes: B batch, D embedding, C classes.
"""

import torch

from trainables.losses.base import ProxyLoss, sizes
from trainables.losses.domains import real
from trainables.losses.operations import log1p_sum_exp
from trainables.mistakes import raise_if_any


class ProxyAnchor(ProxyLoss):
    """mean_{W⁺} log(1 + Σ_{x∈X_w⁺} e^{−scale(S−margin)}) + mean_W log(1 + Σ_{x∈X_w⁻} e^{scale(S+margin)}).

    W⁺ are the proxies of the classes in the batch, W all of them; X_w⁺ the batch's samples of w's class, X_w⁻
    the others. Margin in cosines. Source: Psomas, Metric Learning: A Deep Dive, eq. 2.31 and Table 4.
    """

    static_shapes = True

    def __init__(self, *, num_classes: int, embedding_dim: int, margin: float = 0.1, scale: float = 32.0) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *real("scale", scale, above=0),
            ]
        )
        super().__init__(num_classes=num_classes, embedding_dim=embedding_dim)
        self.margin, self.scale = margin, scale

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC = self.similarities(embeddings_BD)
        return anchored_at_proxies(similarities_BC, labels_B, margin=self.margin, scale=self.scale)


def pull_to_proxies(
    similarities_BC: torch.Tensor, labels_B: torch.Tensor, *, margin: float, scale: float
) -> torch.Tensor:
    """The first term: the mean over the classes of the batch of log(1 + Σ_{x∈X⁺} e^{−scale(S−margin)}).

    A class's logarithm stands at its first sample: to list the classes would make a device wait.
    """
    other_BB = labels_B[:, None] != labels_B
    logits_BB = -scale * (similarities_BC.gather(1, labels_B.expand(len(labels_B), -1)) - margin)
    terms_B = log1p_sum_exp(logits_BB.masked_fill(other_BB, -torch.inf), 0)
    first_B = other_BB.tril(-1).sum(1) == torch.arange(len(labels_B), device=labels_B.device)
    return torch.where(first_B, terms_B, 0).sum() / first_B.sum()


def anchored_at_proxies(
    similarities_BC: torch.Tensor, labels_B: torch.Tensor, *, margin: float, scale: float
) -> torch.Tensor:
    """Both terms, from any similarity of samples and classes (also that of the multi-proxy losses)."""
    push_BC = (scale * (similarities_BC + margin)).scatter(1, labels_B[:, None], -torch.inf)
    push = log1p_sum_exp(push_BC, 0).mean()
    return pull_to_proxies(similarities_BC, labels_B, margin=margin, scale=scale) + push
