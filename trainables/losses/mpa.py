"""Multi Proxy Anchor and its variants, and what losses with several proxies a class share."""

import torch
from torch.nn.functional import softplus

from trainables.losses.base import ProxyLoss, log1p_sum_exp, promoted, proxy_cosines, real, sizes, unit, whole
from trainables.losses.proxies import anchored_at_proxies
from trainables.mistakes import raise_if_any

# What the losses with several proxies a class share: a soft similarity to a class, and the regulariser.
#
# Shapes: B batch, D embedding, C classes, K proxies a class.


class MultiProxyLoss(ProxyLoss):
    """A loss on S(x,c) = Σ_k softmax_k(x·w_ck / gamma) x·w_ck plus tau·R (Saeki et al., eq. 1 and 3)."""

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        proxies_per_class: int,
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
                *real("margin", margin, at_least=0),
                *real("scale", scale, above=0),
                *real("gamma", gamma, above=0),
                *real("tau", tau, at_least=0),
                *(problems or []),
            ]
        )
        super().__init__(num_classes=num_classes, embedding_dim=embedding_dim, proxies_per_class=proxies_per_class)
        self.margin, self.scale, self.gamma, self.tau = margin, scale, gamma, tau

    def similarities_and_regulariser(self, embeddings_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """S(x,c) [B, C] and tau·R, a scalar."""
        similarities_KBC, among_CKK = proxy_cosines(unit(embeddings_BD), promoted(self.proxies))
        return soft_similarities(similarities_KBC, self.gamma), self.tau * centre_regulariser(among_CKK)


def soft_similarities(similarities_KBC: torch.Tensor, gamma: float) -> torch.Tensor:
    """S(x,c) = Σ_k softmax_k(x·w_ck / gamma) x·w_ck [B, C]; gamma divides, as in Saeki et al., eq. 1."""
    return ((similarities_KBC / gamma).softmax(0) * similarities_KBC).sum(0)


def centre_regulariser(among_CKK: torch.Tensor) -> torch.Tensor:
    """R = Σ_c Σ_{t<s} √(2 − 2 w_cs·w_ct) / (C K (K−1)) from the cosines of a class's proxies; 0 for K = 1.

    Source: Saeki et al., eq. 3.
    """
    classes, count, _ = among_CKK.shape
    if count == 1:
        return among_CKK.new_zeros(())
    rows, columns = torch.tril_indices(count, count, -1, device=among_CKK.device)
    # Rounding makes 2 − 2w·w of equal centres negative, and at 0 the root has no gradient.
    return (2 - 2 * among_CKK[:, rows, columns]).clamp(min=1e-5).sqrt().sum() / (classes * count * (count - 1))


# Multi Proxy Anchor: Proxy-Anchor over a soft similarity to several proxies a class.
#
# Shapes: B batch, D embedding, C classes.


class MPA(MultiProxyLoss):
    """pull + push + tau·R, with S and R as in :class:`MultiProxyLoss`.

    pull: 1/|C⁺| Σ_{c∈C⁺} log(1 + Σ_{x∈X_c⁺} e^{−scale(S(x,c)−margin)}), C⁺ the classes in the batch;
    push: 1/|C| Σ_{c∈C} log(1 + Σ_{x∈X_c⁻} e^{scale(S(x,c)+margin)}), C all classes.

    The paper gives no scale: 32 is Proxy-Anchor's. Nor does it say how the proxies begin: as Proxy-Anchor's, whose
    learning rate they share. Source: Saeki et al., Multi Proxy Anchor Family Loss, eq. 6 and 7.
    """

    static_shapes = True

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        proxies_per_class: int = 10,
        margin: float = 0.1,
        scale: float = 32.0,
        gamma: float = 0.1,
        tau: float = 0.2,
    ) -> None:
        super().__init__(
            num_classes=num_classes,
            embedding_dim=embedding_dim,
            proxies_per_class=proxies_per_class,
            margin=margin,
            scale=scale,
            gamma=gamma,
            tau=tau,
        )

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC, regulariser = self.similarities_and_regulariser(embeddings_BD)
        return anchored_at_proxies(similarities_BC, labels_B, margin=self.margin, scale=self.scale) + regulariser


# MPA-AP: MPA with a sample's own class and all others in one logarithm.
#
# Shapes: B batch, D embedding, C classes.


class MPAAP(MPA):
    """1/B Σ_i log(1 + Σ_c e^{scale·S'(x_i,c)}) + tau·R, S' = margin − S for c = c_i and S + margin for the others.

    S and R as in :class:`MultiProxyLoss`, hyperparameters as in :class:`MPA`. Source: Saeki et al., Multi Proxy
    Anchor Family Loss, eq. 15-17.
    """

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC, regulariser = self.similarities_and_regulariser(embeddings_BD)
        own_B1 = labels_B[:, None]
        signed_BC = similarities_BC.scatter(1, own_B1, -similarities_BC.gather(1, own_B1))
        return log1p_sum_exp(self.scale * (signed_BC + self.margin), 1).mean() + regulariser


# MPA-DW: MPA summed sample by sample, so that every sample weighs its own class and the others.
#
# Shapes: B batch, D embedding, C classes.


class MPADW(MPA):
    """1/B Σ_i [log(1 + e^{−scale(S(x_i,c_i)−margin)}) + log(1 + Σ_{c≠c_i} e^{scale(S(x_i,c)+margin)})] + tau·R.

    S and R as in :class:`MultiProxyLoss`, hyperparameters as in :class:`MPA`. Source: Saeki et al., Multi Proxy
    Anchor Family Loss, eq. 12 and 13.
    """

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BC, regulariser = self.similarities_and_regulariser(embeddings_BD)
        own_B1 = labels_B[:, None]
        # beyond 40 a softplus is its argument to float64's last digit
        pull_B = softplus(-self.scale * (similarities_BC.gather(1, own_B1)[:, 0] - self.margin), threshold=40)
        push_B = log1p_sum_exp((self.scale * (similarities_BC + self.margin)).scatter(1, own_B1, -torch.inf), 1)
        return (pull_B + push_B).mean() + regulariser
