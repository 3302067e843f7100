"""MPA-AP: MPA with a sample's own class and all others in one logarithm.

Shapes: B batch, D embedding, C classes.
"""

import torch

from trainables.losses.mpa import MPA
from trainables.losses.operations import log1p_sum_exp


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
