"""Losses over the ranking of a batch: PNP, Smooth-AP and top-k precision."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainables.losses.base import (
    REDUCTIONS,
    Loss,
    Reduction,
    Used,
    choice,
    cosines,
    real,
    reduced,
    same_and_different,
    sizes,
    whole,
)
from trainables.mistakes import raise_if_any

# How far others rank before a query's positives: the smooth ranks that PNP and Smooth-AP are made of.
#
# Shapes: B batch (every sample a query), P pairs of a query and one of its positives.


@dataclass(frozen=True, kw_only=True)
class PositivePairs:
    """Every (query, positive) of a batch, the positive's smooth rank, and how the pairs average."""

    negatives_before_P: torch.Tensor
    positives_before_P: torch.Tensor | None
    query_P: torch.Tensor
    positives_B: torch.Tensor

    def mean_of_query_means(self, values_P: torch.Tensor) -> torch.Tensor:
        """The mean over a query's positives, then over the queries that have one (0 when none has)."""
        queries = (self.positives_B > 0).sum().clamp(min=1)
        return (values_P / self.positives_B[self.query_P]).sum() / queries


def positive_pairs(
    similarities_BB: torch.Tensor, labels_B: torch.Tensor, *, temperature: float, among_positives: bool
) -> PositivePairs:
    """R(i) = Σ_j σ((s_j − s_i)/temperature) for each positive i of each query (PNP, eq. 2 and 3).

    ``negatives_before_P`` sums over the query's negatives; ``positives_before_P``, where asked for, over its
    other positives. The query itself is neither.
    """
    same_BB, different_BB = same_and_different(labels_B)
    query_P, positive_P = same_BB.nonzero(as_tuple=True)
    # Rows are repeated by index_select, whose backward adds in parallel where that of indexing does not.
    rows_PB = similarities_BB.index_select(0, query_P)
    ahead_PB = ((rows_PB - rows_PB.gather(1, positive_P[:, None])) / temperature).sigmoid()
    positives_before_P = None
    if among_positives:
        others_PB = same_BB[query_P].scatter(1, positive_P[:, None], False)
        positives_before_P = (ahead_PB * others_PB).sum(1)
    return PositivePairs(
        negatives_before_P=(ahead_PB * different_BB[query_P]).sum(1),
        positives_before_P=positives_before_P,
        query_P=query_P,
        positives_B=same_BB.sum(1),
    )


# PNP: penalise the negatives that a query ranks before its positives, and nothing else.
#
# Shapes: B batch, D embedding, P pairs of a query and one of its positives.

VARIANTS: dict[str, Callable[[torch.Tensor, float, float], torch.Tensor]] = {
    "O": lambda before, bound, alpha: before,
    "Iu": lambda before, bound, alpha: (1 + before) * before.log1p(),
    "Ib": lambda before, bound, alpha: (bound * before - (bound * before).log1p()) / bound**2,
    "Ds": lambda before, bound, alpha: before.log1p(),
    # 1 − (1+R)^−alpha, without losing the small R that a good ranking has
    "Dq": lambda before, bound, alpha: -(-alpha * before.log1p()).expm1(),
}
"""What each variant makes of R, the negatives before a positive: f(R, bound, alpha)."""


class PNP(Loss):
    """mean over queries, and over a query's positives i, of f(R_i), R_i = Σ_{n∈N} σ((s_n − s_i)/temperature).

    f by variant: O: R; Iu: (1+R) log(1+R); Ib: (bR − log(1+bR))/b² with b = ``bound``; Ds: log(1+R);
    Dq: 1 − (1+R)^−alpha. The query is no positive of itself, and a query without positives counts nowhere.

    Iu is eq. 7, which the authors' code has too. Eq. 6, printed as its derivative, is that of another function:
    log(1+R) belongs to (1+R) log(1+R) − R, and eq. 7 has 1 + log(1+R). So at R = 0 Iu has O's derivative and not, as
    the text says of it, none: its gradient does not fade as a ranking gets right, which Ib's does, and no learning
    rate makes up for that.
    Source: Li et al., Rethinking the Optimization of Average Precision, eq. 2-13.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        variant: str = "Dq",
        temperature: float = 0.01,
        bound: float = 4.0,
        alpha: float = 4.0,
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *choice("variant", variant, VARIANTS),
                *real("temperature", temperature, above=0),
                *real("bound", bound, above=0),
                *real("alpha", alpha, at_least=1),
            ]
        )
        super().__init__()
        self.variant, self.temperature, self.bound, self.alpha = variant, temperature, bound, alpha

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        pairs = positive_pairs(cosines(embeddings_BD), labels_B, temperature=self.temperature, among_positives=False)
        return pairs.mean_of_query_means(self.penalty(pairs.negatives_before_P))

    def penalty(self, negatives_before: torch.Tensor) -> torch.Tensor:
        """f(R) of each R, in any shape."""
        return VARIANTS[self.variant](negatives_before, self.bound, self.alpha)


# Smooth-AP: one minus the average precision, its ranks made smooth.
#
# Shapes: B batch, D embedding, P pairs of a query and one of its positives.


class SmoothAP(Loss):
    """mean over queries, and over a query's positives i, of 1 − (1 + R(i,P)) / (1 + R(i,P) + R(i,N)).

    R(i,·) = Σ_j σ((s_j − s_i)/temperature) over the query's other positives P or its negatives N. The query is no
    positive of itself, and a query without positives counts nowhere. Source: Li et al., Rethinking the
    Optimization of Average Precision, eq. 3 and 4.
    """

    def __init__(self, *, num_classes: int, embedding_dim: int, temperature: float = 0.01) -> None:
        raise_if_any([*sizes(num_classes, embedding_dim), *real("temperature", temperature, above=0)])
        super().__init__()
        self.temperature = temperature

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        pairs = positive_pairs(cosines(embeddings_BD), labels_B, temperature=self.temperature, among_positives=True)
        assert pairs.positives_before_P is not None
        return pairs.mean_of_query_means(self.penalty(pairs.positives_before_P, pairs.negatives_before_P))

    @staticmethod
    def penalty(positives_before: torch.Tensor, negatives_before: torch.Tensor) -> torch.Tensor:
        """R(i,N) / (1 + R(i,P) + R(i,N)) of each R(i,P) and R(i,N), in any shape."""
        return negatives_before / (1 + positives_before + negatives_before)


# Top-k precision: the samples at the wrong side of the k-th rank, and no others.
#
# Shapes: B batch (every sample a query), D embedding, Q queries.


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
