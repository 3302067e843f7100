"""Losses with one proxy a class, and with several: SoftTriple, Multi Proxy Anchor and its variants.

Equations and defaults are in the rows of ``LOSSES``. Shapes: B batch, D embedding, C classes, K proxies a class, V the
length of a proxy or of its similarities to the batch.
"""

import math
from abc import abstractmethod
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus, threshold

from trainables.common.rules import Bounds, Count, NotNegative, OneOf, Positive
from trainables.common.vectors import unit
from trainables.losses.loss import (
    ProxyLoss,
    Reduced,
    declared,
    log1p_sum_exp,
    masked_sum,
    promoted,
    proxy_cosines,
    reduced,
)


@declared("softmax")
class Softmax(ProxyLoss):
    """S_ic is the cosine of w_c and x_i (``similarity="cosine"``) or w_c·x_i (``similarity="dot"``); no bias.

    "dot" normalises neither, as in a network's last layer; it is eq. 2.26 at scale 1, since the thesis normalises only
    in ArcFace. At scale 1 cosines leave every class likely, so the loss stays high: log(1 + (C−1)/e²) or more.
    """

    similarity: Annotated[str, OneOf(("cosine", "dot"))]
    scale: Positive
    reduction: Reduced = "mean"

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> Tensor:
        """Return proxies uniform in ±1/√D, as the weights of torch's linear layer."""
        bound = embedding_dim**-0.5
        return torch.empty(num_classes, proxies_per_class, embedding_dim).uniform_(-bound, bound)

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
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

    def prepare(self) -> None:
        super().prepare()
        radians = math.radians(self.margin)
        self._cosine, self._sine = math.cos(radians), math.sin(radians)
        self._drop = radians * self._sine

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> Tensor:
        """Return proxies from N(0, 0.01²), as in the code of ArcFace's authors (InsightFace)."""
        return 0.01 * torch.randn(num_classes, proxies_per_class, embedding_dim)

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        cosines_BC = self.similarities(embeddings_BD)
        own_B1 = labels_B[:, None]
        cosine_B1 = cosines_BC.gather(1, own_B1)
        # cos(θ+m) by the addition theorem: acos has no gradient at ±1, nor has the sine's root at 0
        least = torch.finfo(cosine_B1.dtype).eps
        sine_B1 = threshold(1 - cosine_B1.square(), least, least).sqrt()
        shifted_B1 = cosine_B1 * self._cosine - sine_B1 * self._sine
        harder_B1 = torch.where(cosine_B1 > -self._cosine, shifted_B1, cosine_B1 - self._drop)
        return cross_entropy(self.scale * cosines_BC.scatter(1, own_B1, harder_B1), labels_B, reduction=self.reduction)


@declared("proxy_nca")
class ProxyNCA(ProxyLoss):
    """S_ic is the cosine similarity of x_i and the proxy w_c; y is the sample's class.

    The sample's own proxy is not in the denominator, so the loss can be negative. With a single class it is 0. The
    paper prints the sum over the samples; the default is their mean (:data:`Reduction`).

    Eq. 2.27 has no scale, so that all other proxies have about the same weight. The squared distances of the authors'
    paper have a scale of 2, the code of the thesis one of 64, and that which Sampling Wisely follows 18. Both have the
    own proxy in the denominator, as :class:`Softmax` with this scale.
    """

    scale: Positive
    reduction: Reduced = "mean"

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> Tensor:
        """Return proxies from N(0, 1/D), of length about 1.

        The authors released no code, and their paper gives no initialisation. This is that of the PyTorch code which
        Sampling Wisely follows (dichotomies/proxy-nca): a standard deviation of 1/8 at 64 dimensions, for length 1.
        """
        return embedding_dim**-0.5 * torch.randn(num_classes, proxies_per_class, embedding_dim)

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        logits_BC = self.scale * self.similarities(embeddings_BD)
        if len(self.proxies) == 1:
            return logits_BC.sum() * 0
        own_B1 = labels_B[:, None]
        own_B = logits_BC.gather(1, own_B1)[:, 0]
        others_B = logits_BC.scatter(1, own_B1, -torch.inf).logsumexp(1)
        return reduced((others_B - own_B).sum(), len(labels_B), self.reduction)


@declared("proxy_anchor")
class ProxyAnchor(ProxyLoss):
    """W⁺ are the proxies of the classes in the batch, W all; X⁺ are the samples of a proxy's class, X⁻ the others."""

    margin: NotNegative
    scale: Positive

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        similarities_BC = self.similarities(embeddings_BD)
        return anchored_at_proxies(similarities_BC, labels_B, margin=self.margin, scale=self.scale)


def pull_to_proxies(similarities_BC: Tensor, labels_B: Tensor, *, margin: float, scale: float) -> Tensor:
    """Return Proxy-Anchor's first term, the mean over the batch's classes of log(1 + Σ_{X⁺} e^{−scale(S−margin)}).

    It is computed for all C classes if they are fewer than the samples. Otherwise a class's logarithm is counted at its
    first sample, since listing the classes would synchronise with the device.
    """
    samples, classes = similarities_BC.shape
    if classes < samples:
        own_BC = labels_B[:, None] == torch.arange(classes, device=labels_B.device)
        logits_BC = torch.where(own_BC, -scale * (similarities_BC - margin), -torch.inf)
        # without a sample a class has log 1
        return log1p_sum_exp(logits_BC, 0).sum() / own_BC.any(0).sum()
    same_BB = labels_B[:, None] == labels_B
    logits_BB = -scale * (similarities_BC.gather(1, labels_B.expand(samples, -1)) - margin)
    terms_B = log1p_sum_exp(torch.where(same_BB, logits_BB, -torch.inf), 0)
    first_B = ~same_BB.tril(-1).any(1)
    return masked_sum(terms_B, first_B) / first_B.sum()


def anchored_at_proxies(similarities_BC: Tensor, labels_B: Tensor, *, margin: float, scale: float) -> Tensor:
    """Return Proxy-Anchor's two terms for any similarity of samples to classes (MPA has a soft one)."""
    push_BC = (scale * (similarities_BC + margin)).scatter_(1, labels_B[:, None], -torch.inf)
    push = log1p_sum_exp(push_BC, 0).mean()
    return pull_to_proxies(similarities_BC, labels_B, margin=margin, scale=scale) + push


@declared("proxy_push")
class ProxyPush(ProxyLoss):
    """Proxy-Anchor's pull to the proxies, and a push of each proxy w from every other class's proxy w⁻.

    s(w,w⁻) is w·w⁻ (``similarity="proxy"``) or Σ_x (w·x)(x·w⁻) over the batch (``similarity="data"``), a sum that grows
    with the batch. Margin, scale and initial proxies are Proxy-Anchor's, as in the thesis's code.
    """

    similarity: Annotated[str, OneOf(("proxy", "data"))]
    margin: NotNegative
    scale: Positive

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        proxies_CD = unit(promoted(self.proxies[:, 0]))
        similarities_BC = self.similarities(embeddings_BD)
        vectors_CV = proxies_CD if self.similarity == "proxy" else similarities_BC.T
        between_CC = vectors_CV @ vectors_CV.T
        itself_CC = torch.eye(len(proxies_CD), dtype=torch.bool, device=proxies_CD.device)
        push_CC = (self.scale * (between_CC + self.margin)).masked_fill(itself_CC, -torch.inf)
        pull = pull_to_proxies(similarities_BC, labels_B, margin=self.margin, scale=self.scale)
        return pull + log1p_sum_exp(push_CC, 1).mean()


# Several proxies a class.


class MultiProxyLoss(ProxyLoss):
    """Loss on a similarity S to a class's proxies, plus a regulariser tau·R (Saeki et al., eq. 1 and 3)."""

    proxies_per_class: Count
    similarity: Annotated[str, OneOf(("softmax", "max", "mean"))]
    margin: NotNegative
    scale: Positive
    gamma: Positive
    tau: NotNegative

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        similarities_KBC, among_CKK = proxy_cosines(embeddings_BD, promoted(self.proxies))
        loss = self.of_classes(self.to_classes(similarities_KBC), labels_B)
        return loss + centre_regulariser(among_CKK, self.tau)

    def to_classes(self, similarities_KBC: Tensor) -> Tensor:
        """Return S(x,c) [B, C]: the mean of the similarities to a class's proxies, their maximum or soft maximum.

        The last is Σ_k softmax_k(x·w_ck / gamma) x·w_ck; gamma divides, as in Saeki et al., eq. 1.
        """
        if self.similarity == "max":
            return similarities_KBC.amax(0)
        if self.similarity == "mean":
            return similarities_KBC.mean(0)
        return ((similarities_KBC / self.gamma).softmax(0) * similarities_KBC).sum(0)

    @abstractmethod
    def of_classes(self, similarities_BC: Tensor, labels_B: Tensor) -> Tensor:
        """Return the loss of S, without the regulariser."""


def centre_regulariser(among_CKK: Tensor, tau: float) -> Tensor:
    """Compute tau·R from cosines: R = Σ_c Σ_{t<s} √(2 − 2 w_cs·w_ct) / (C K (K−1)), 0 for K = 1 (eq. 3)."""
    classes, count, _ = among_CKK.shape
    if count == 1 or (isinstance(tau, float | int) and not tau):  # in a compiled step tau is a tensor
        return among_CKK.new_zeros(())
    # rounding may make 1 − w·w of equal proxies negative, and the root has no gradient at 0
    roots_CKK = threshold(1 - among_CKK, 5e-6, 5e-6).sqrt()
    return roots_CKK.tril(-1).sum() * (tau * 2**0.5 / (classes * count * (count - 1)))


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
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> Tensor:
        """Return proxies uniform in ±1/√(C·K), as in the code of SoftTriple's authors (idstcv/SoftTriple)."""
        bound = (num_classes * proxies_per_class) ** -0.5
        return torch.empty(num_classes, proxies_per_class, embedding_dim).uniform_(-bound, bound)

    def of_classes(self, similarities_BC: Tensor, labels_B: Tensor) -> Tensor:
        own_B1 = labels_B[:, None]
        margins_B1 = torch.zeros_like(own_B1, dtype=similarities_BC.dtype) - self.margin
        shifted_BC = similarities_BC.scatter_add_(1, own_B1, margins_B1)
        return cross_entropy(self.scale * shifted_BC, labels_B, reduction=self.reduction)


@declared("mpa")
class MPA(MultiProxyLoss):
    """S and R are those of :class:`MultiProxyLoss`.

    C⁺ are the classes in the batch, C all classes; X⁺ are the batch's samples of a class, X⁻ the others. S is the soft
    maximum of eq. 1, or with ``similarity`` the maximum or the mean over a class's proxies, which section 3.2 names
    without formulas and which have no gamma. The paper gives no scale: 32 is Proxy-Anchor's. It does not specify
    initial proxies either: they are Proxy-Anchor's, whose learning rate they share.
    """

    def of_classes(self, similarities_BC: Tensor, labels_B: Tensor) -> Tensor:
        return anchored_at_proxies(similarities_BC, labels_B, margin=self.margin, scale=self.scale)


@declared("mpa_ap")
class MPAAP(MPA):
    """MPA with a sample's own class c_i and all others in one logarithm; S, R and params as in :class:`MPA`."""

    def of_classes(self, similarities_BC: Tensor, labels_B: Tensor) -> Tensor:
        sign_BC = torch.ones_like(similarities_BC).scatter_(1, labels_B[:, None], -1)
        return log1p_sum_exp(self.scale * (sign_BC * similarities_BC + self.margin), 1).mean()


@declared("mpa_dw")
class MPADW(MPA):
    """MPA summed by sample instead of by class; S, R and params as in :class:`MPA`."""

    def of_classes(self, similarities_BC: Tensor, labels_B: Tensor) -> Tensor:
        own_B1 = labels_B[:, None]
        # above 40 softplus equals its argument to float64's last digit
        pull_B = softplus(-self.scale * (similarities_BC.gather(1, own_B1)[:, 0] - self.margin), threshold=40)
        push_B = log1p_sum_exp((self.scale * (similarities_BC + self.margin)).scatter_(1, own_B1, -torch.inf), 1)
        return (pull_B + push_B).mean()
