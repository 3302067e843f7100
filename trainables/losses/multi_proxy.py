"""What the losses with several proxies a class share: a soft similarity to a class, and the regulariser.

Shapes: B batch, D embedding, C classes, K proxies a class.
"""

import torch

from trainables.losses.base import ProxyLoss, sizes
from trainables.losses.domains import real, whole
from trainables.losses.operations import promoted, unit
from trainables.losses.proxy_cosines import proxy_cosines
from trainables.mistakes import raise_if_any


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
