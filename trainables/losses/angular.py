"""Angular: the angle at a negative of the triangle that it makes with a positive pair.

Shapes: B batch, D embedding, P positive pairs.
"""

import math

import torch

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import real
from trainables.losses.operations import cosines, log1p_sum_exp, same_and_different
from trainables.mistakes import raise_if_any


class Angular(Loss):
    """mean over positive pairs of log(1 + Σ_n e^{4 tan²(angle) (x_a + x_p)·x_n − 2(1 + tan²(angle)) x_a·x_p}).

    n are the samples of other classes; the angle in degrees. Source: Wang et al., Deep Metric Learning with
    Angular Loss (2017), eq. 7 and 8, over all positive pairs of the batch.
    """

    def __init__(self, *, num_classes: int, embedding_dim: int, angle: float = 45.0) -> None:
        raise_if_any([*sizes(num_classes, embedding_dim), *real("angle", angle, above=0, below=90)])
        super().__init__()
        self.angle = angle

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        # each pair once: the term is the same from both ends
        anchor_P, positive_P = same_BB.triu(1).nonzero(as_tuple=True)
        square = math.tan(math.radians(self.angle)) ** 2
        both_PB = similarities_BB.index_select(0, anchor_P) + similarities_BB.index_select(0, positive_P)
        pair_P1 = similarities_BB[anchor_P, positive_P][:, None]
        logits_PB = 4 * square * both_PB - 2 * (1 + square) * pair_P1
        terms_P = log1p_sum_exp(logits_PB.masked_fill(~different_BB[anchor_P], -torch.inf), 1)
        return terms_P.sum() / max(len(terms_P), 1)
