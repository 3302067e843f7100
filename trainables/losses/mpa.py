"""Multi Proxy Anchor: Proxy-Anchor over a soft similarity to several proxies a class.

Shapes: B batch, D embedding, C classes.
"""

import torch

from trainables.losses.multi_proxy import MultiProxyLoss
from trainables.losses.proxy_anchor import anchored_at_proxies


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
