"""Multi-Similarity: positives and negatives of an anchor, each weighed among their likes.

Shapes: B batch, D embedding.
"""

import torch

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import real
from trainables.losses.mining import informative_pairs
from trainables.losses.operations import cosines, log1p_sum_exp, same_and_different
from trainables.losses.used import Used
from trainables.mistakes import raise_if_any


class MultiSimilarity(Loss):
    """1/B Σ_i {1/α log[1 + Σ_{p∈P_i} e^{−α(S_ip−margin)}] + 1/β log[1 + Σ_{n∈N_i} e^{β(S_in−margin)}]}.

    α is ``pos_scale`` and β ``neg_scale``. With an ``epsilon`` only informative pairs are summed
    (:func:`informative_pairs`); ``None`` sums all. Source: Psomas, Metric Learning: A Deep Dive, eq. 2.24 and
    Table 4.
    """

    static_shapes = True

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float = 0.5,
        pos_scale: float = 2.0,
        neg_scale: float = 50.0,
        epsilon: float | None = 0.1,
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=-1, at_most=1),
                *real("pos_scale", pos_scale, above=0),
                *real("neg_scale", neg_scale, above=0),
                *([] if epsilon is None else real("epsilon", epsilon, at_least=0)),
            ]
        )
        super().__init__()
        self.margin, self.pos_scale, self.neg_scale, self.epsilon = margin, pos_scale, neg_scale, epsilon

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        if self.epsilon is not None:
            same_BB, different_BB = informative_pairs(similarities_BB, same_BB, different_BB, self.epsilon)
        self.used = Used("pairs", (same_BB | different_BB).sum())
        above_BB = similarities_BB - self.margin
        pull_B = log1p_sum_exp((-self.pos_scale * above_BB).masked_fill(~same_BB, -torch.inf), 1)
        push_B = log1p_sum_exp((self.neg_scale * above_BB).masked_fill(~different_BB, -torch.inf), 1)
        return (pull_B / self.pos_scale + push_B / self.neg_scale).mean()
