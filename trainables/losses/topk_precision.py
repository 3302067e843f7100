"""Top-k precision: the samples at the wrong side of the k-th rank, and no others.

Shapes: B batch (every sample a query), D embedding, Q queries.
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

    static_shapes = True

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
        terms_B = self.terms(cosines(embeddings_BD), *same_and_different(labels_B))
        return reduced(terms_B.sum(), len(terms_B), self.reduction)

    def terms(self, similarities_QB: torch.Tensor, same_QB: torch.Tensor, different_QB: torch.Tensor) -> torch.Tensor:
        """The loss of each query [Q], whose positives and negatives two masks tell."""
        scores_QB = torch.where(different_QB, similarities_QB + self.margin, similarities_QB)
        candidates_QB = same_QB | different_QB
        with torch.no_grad():
            order_QB = scores_QB.masked_fill(~candidates_QB, -torch.inf).argsort(stable=True, dim=1, descending=True)
            same_in_order_QB = same_QB.gather(1, order_QB)
            different_in_order_QB = different_QB.gather(1, order_QB)
            rank_B = torch.arange(1, order_QB.shape[1] + 1, device=order_QB.device)
            positives_Q1 = same_QB.sum(1, keepdim=True)
            in_first_k_QB = (rank_B <= self.k) & (same_in_order_QB | different_in_order_QB)
            ideal_QB = torch.where(
                same_in_order_QB,
                same_in_order_QB.cumsum(1) <= self.k,
                different_in_order_QB & (different_in_order_QB.cumsum(1) <= self.k - positives_Q1),
            )
            misplaced_QB = in_first_k_QB.to(scores_QB.dtype) - ideal_QB.to(scores_QB.dtype)
            self.used = Used("triplets", (misplaced_QB > 0).sum())
        return (scores_QB.gather(1, order_QB) * misplaced_QB).sum(1)
