"""N-pair: every positive of an anchor against every negative, in one logarithm.

Shapes: B batch, D embedding.
"""

import torch
from torch.nn.functional import softplus

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import real
from trainables.losses.operations import cosines, masked_logsumexp, same_and_different
from trainables.mistakes import raise_if_any


class NPair(Loss):
    """1/B Σ_i log(1 + Σ_{j∈P_i, k∈N_i} e^{S_ik−S_ij}) + l2/B Σ_i ‖x_i‖².

    The last term holds the embeddings' lengths before normalisation. An anchor without a positive or without a
    negative gives 0. Source: Psomas, Metric Learning: A Deep Dive, eq. 2.22 and Table 4.
    """

    static_shapes = True

    def __init__(self, *, num_classes: int, embedding_dim: int, l2: float = 0.02) -> None:
        raise_if_any([*sizes(num_classes, embedding_dim), *real("l2", l2, at_least=0)])
        super().__init__()
        self.l2 = l2

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        # the double sum is the product of a sum over positives and one over negatives
        logits_B = masked_logsumexp(-similarities_BB, same_BB, 1) + masked_logsumexp(similarities_BB, different_BB, 1)
        lengths = embeddings_BD.square().sum(1).mean()
        return softplus(logits_B, threshold=40).mean() + self.l2 * lengths
