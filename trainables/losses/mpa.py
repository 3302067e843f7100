"""Losses with several proxies a class: their common base, and Multi Proxy Anchor with its variants.

Equations and defaults are in the rows of ``LOSSES``. Shapes: B batch, D embedding, C classes, K proxies a class.
"""

import torch
from torch.nn.functional import softplus, threshold

from trainables.errors import raise_if_any
from trainables.losses.base import (
    ProxyLoss,
    choice,
    declared,
    log1p_sum_exp,
    promoted,
    proxy_cosines,
    real,
    sizes,
    whole,
)
from trainables.losses.proxies import anchored_at_proxies

SIMILARITIES = ("softmax", "max", "mean")
"""Similarities of a sample to a class, from those to its proxies (Saeki et al., section 3.2)."""


class MultiProxyLoss(ProxyLoss):
    """Loss on a similarity S to a class's proxies, plus a regulariser tau·R (Saeki et al., eq. 1 and 3)."""

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        proxies_per_class: int,
        similarity: str,
        margin: float,
        scale: float,
        gamma: float,
        tau: float,
        problems: list[str] | None = None,
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *whole("proxies_per_class", proxies_per_class, at_least=1),
                *choice("similarity", similarity, SIMILARITIES),
                *real("margin", margin, at_least=0),
                *real("scale", scale, above=0),
                *real("gamma", gamma, above=0),
                *real("tau", tau, at_least=0),
                *(problems or []),
            ]
        )
        super().__init__(num_classes=num_classes, embedding_dim=embedding_dim, proxies_per_class=proxies_per_class)
        self.similarity = similarity
        self.margin, self.scale, self.gamma, self.tau = margin, scale, gamma, tau

    def similarities_and_regulariser(self, embeddings_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return S [B, C] and the scalar tau·R."""
        similarities_KBC, among_CKK = proxy_cosines(embeddings_BD, promoted(self.proxies))
        similarities_BC = class_similarities(similarities_KBC, self.similarity, self.gamma)
        return similarities_BC, centre_regulariser(among_CKK, self.tau)


def class_similarities(similarities_KBC: torch.Tensor, similarity: str, gamma: float) -> torch.Tensor:
    """Compute S(x,c) [B, C]: the mean of the similarities to a class's proxies, their maximum, or their soft maximum.

    The last is Σ_k softmax_k(x·w_ck / gamma) x·w_ck; gamma divides, as in Saeki et al., eq. 1.
    """
    if similarity == "max":
        return similarities_KBC.amax(0)
    if similarity == "mean":
        return similarities_KBC.mean(0)
    return ((similarities_KBC / gamma).softmax(0) * similarities_KBC).sum(0)


def centre_regulariser(among_CKK: torch.Tensor, tau: float = 1.0) -> torch.Tensor:
    """Compute tau·R from cosines: R = Σ_c Σ_{t<s} √(2 − 2 w_cs·w_ct) / (C K (K−1)), 0 for K = 1 (eq. 3)."""
    classes, count, _ = among_CKK.shape
    if count == 1 or (isinstance(tau, float | int) and not tau):  # stacked heads have a tensor
        return among_CKK.new_zeros(())
    # rounding may make 1 − w·w of equal proxies negative, and the root has no gradient at 0
    roots_CKK = threshold(1 - among_CKK, 5e-6, 5e-6).sqrt()
    return roots_CKK.tril(-1).sum() * (tau * 2**0.5 / (classes * count * (count - 1)))


@declared("mpa")
class MPA(MultiProxyLoss):
    """S and R are those of :class:`MultiProxyLoss`.

    C⁺ are the classes in the batch, C all classes; X⁺ are the batch's samples of a class, X⁻ the others. S is the soft
    maximum of eq. 1, or with ``similarity`` the maximum or the mean over a class's proxies, which section 3.2 names
    without formulas and which have no gamma. The paper gives no scale: 32 is Proxy-Anchor's. It does not specify
    initial proxies either: they are Proxy-Anchor's, whose learning rate they share.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        proxies_per_class: int,
        similarity: str,
        margin: float,
        scale: float,
        gamma: float,
        tau: float,
    ) -> None:
        super().__init__(
            num_classes=num_classes,
            embedding_dim=embedding_dim,
            proxies_per_class=proxies_per_class,
            similarity=similarity,
            margin=margin,
            scale=scale,
            gamma=gamma,
            tau=tau,
        )

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC, regulariser = self.similarities_and_regulariser(embeddings_BD)
        return anchored_at_proxies(similarities_BC, labels_B, margin=self.margin, scale=self.scale) + regulariser


@declared("mpa_ap")
class MPAAP(MPA):
    """MPA with a sample's own class c_i and all others in one logarithm; S, R and params as in :class:`MPA`."""

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC, regulariser = self.similarities_and_regulariser(embeddings_BD)
        sign_BC = torch.ones_like(similarities_BC).scatter_(1, labels_B[:, None], -1)
        return log1p_sum_exp(self.scale * (sign_BC * similarities_BC + self.margin), 1).mean() + regulariser


@declared("mpa_dw")
class MPADW(MPA):
    """MPA summed by sample instead of by class; S, R and params as in :class:`MPA`."""

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC, regulariser = self.similarities_and_regulariser(embeddings_BD)
        own_B1 = labels_B[:, None]
        # above 40 softplus equals its argument to float64's last digit
        pull_B = softplus(-self.scale * (similarities_BC.gather(1, own_B1)[:, 0] - self.margin), threshold=40)
        push_B = log1p_sum_exp((self.scale * (similarities_BC + self.margin)).scatter_(1, own_B1, -torch.inf), 1)
        return (pull_B + push_B).mean() + regulariser
