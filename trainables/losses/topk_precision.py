"""Top-k precision: the samples at the wrong side of the k-th rank, and no others.

Shapes: B batch (every sample a query), D embedding.
"""

import torch

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import choice, real, whole
from trainables.losses.operations import REDUCTIONS, Reduction, cosines, reduced, same_and_different
from trainables.losses.used import Used
from trainables.mistakes import raise_if_any


class TopKPrecision(Loss):
    """Σ over queries of Σ_{i∈N} ŝ_i − Σ_{i∈P} ŝ_i, ŝ = s + margin for negatives.

    P and N are a query's positives and negatives misplaced in the ranking by ŝ. An ideal first k holds the first
    min(k, n₊) positives and, where n₊ < k (case 1 of the paper, else case 2), the first k − n₊ negatives. In both
    cases ŝ over N less ŝ over P is ŝ over the first k less ŝ over the ideal k. A query without positives gives 0.
    Algorithm 1 sums over the queries; by default it is the mean over all of them (:data:`Reduction`), and the authors'
    code averages too. Against the sum, the decay of their Adam would weigh B times less. P and N are equally many, and
    |N| over all queries is the number of triplets used, as in the paper's section 4.5. Source: Lu et al., Sampling
    Wisely, eq. 4-10.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float = 0.1,
        k: int = 5,
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *whole("k", k, at_least=1),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.k, self.reduction = margin, k, reduction

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        same_BB, different_BB = same_and_different(labels_B)
        similarities_BB = cosines(embeddings_BD)
        scores_BB = similarities_BB + self.margin * different_BB
        candidates_BB = same_BB | different_BB
        with torch.no_grad():
            order_BB = scores_BB.masked_fill(~candidates_BB, -torch.inf).argsort(stable=True, dim=1, descending=True)
            same_in_order_BB = same_BB.gather(1, order_BB)
            different_in_order_BB = different_BB.gather(1, order_BB)
            rank_B = torch.arange(1, len(labels_B) + 1, device=labels_B.device)
            positives_B1 = same_BB.sum(1, keepdim=True)
            in_first_k_BB = (rank_B <= self.k) & (same_in_order_BB | different_in_order_BB)
            ideal_BB = torch.where(
                same_in_order_BB,
                same_in_order_BB.cumsum(1) <= self.k,
                different_in_order_BB & (different_in_order_BB.cumsum(1) <= self.k - positives_B1),
            )
            misplaced_BB = in_first_k_BB.to(scores_BB.dtype) - ideal_BB.to(scores_BB.dtype)
            self.used = Used("triplets", (misplaced_BB > 0).sum())
        total = (scores_BB.gather(1, order_BB) * misplaced_BB).sum()
        return reduced(total, len(labels_B), self.reduction)
