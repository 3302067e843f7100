"""MPA-DW: MPA summed sample by sample, so that every sample weighs its own class and the others.

Shapes: B batch, D embedding, C classes.
"""

import torch
from torch.nn.functional import softplus

from trainables.losses.mpa import MPA
from trainables.losses.operations import log1p_sum_exp


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
