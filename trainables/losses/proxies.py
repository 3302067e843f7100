"""Losses with one proxy a class: Proxy-NCA, Proxy-Anchor and ProxyPush."""

import torch

from trainables.losses.base import (
    REDUCTIONS,
    ProxyLoss,
    Reduction,
    choice,
    log1p_sum_exp,
    promoted,
    real,
    reduced,
    sizes,
    unit,
)
from trainables.mistakes import raise_if_any

# Cosine similarities to proxies, and among those of a class, without ever storing normalised proxies.
#
# With tens of thousands of proxies a normalised copy and its gradient cost as much as the matrix products themselves.
# Here the products take the proxies as they are; lengths and radial gradients are set right on the small matrices.
#
# Shapes: B batch, D embedding, C classes, K proxies a class.


# Proxy-NCA: every sample is drawn to its proxy against all others.
#
# Shapes: B batch, D embedding, C classes.


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


# Proxy-Anchor: every proxy pulls the batch's samples of its class and pushes all others.
#
# Shapes: B batch, D embedding, C classes.


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


# Proxy-Anchor's pull towards proxies, and a push of the proxies from each other.
#
# Shapes: B batch, D embedding, C classes.

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
