"""Losses over the ranking of a batch; equations and defaults are in their rows of ``LOSSES``.

Shapes: B batch (each sample is a query), D embedding, P pairs of a query and one of its positives, Q queries.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch

from trainables.common.rules import Bounds
from trainables.losses.loss import (
    Among,
    Loss,
    NotNegative,
    Positive,
    Reduced,
    Used,
    cosines,
    declared,
    masked_sum,
    reduced,
    same_and_different,
)
from trainables.losses.mining import positive_pairs


@dataclass(frozen=True, kw_only=True)
class RankedPositives:
    """Every (query, positive) pair of a batch, with smooth counts of the samples ranked before the positive."""

    negatives_before_P: torch.Tensor
    positives_before_P: torch.Tensor | None
    query_P: torch.Tensor
    exists_P: torch.Tensor
    positives_B: torch.Tensor

    def mean_of_query_means(self, values_P: torch.Tensor) -> torch.Tensor:
        """Return the mean over a query's positives, then over the queries that have any (0 without any)."""
        queries = (self.positives_B > 0).sum().clamp(min=1)
        return masked_sum(values_P / self.positives_B.clamp(min=1)[self.query_P], self.exists_P) / queries


def ranked_positives(
    similarities_BB: torch.Tensor,
    labels_B: torch.Tensor,
    *,
    temperature: float,
    among_positives: bool,
    most: int | None = None,
) -> RankedPositives:
    """Compute R(i) = Σ_j σ((s_j − s_i)/temperature) for each positive i of each query (PNP, eq. 2 and 3).

    ``negatives_before_P`` sums over the query's negatives, ``positives_before_P`` over its other positives (None
    without ``among_positives``). The query itself is neither. ``most`` is at least the number of pairs, see
    :func:`trainables.losses.mining.positive_pairs`.
    """
    same_BB, different_BB = same_and_different(labels_B)
    query_P, positive_P, exists_P = positive_pairs(same_BB, most)
    # index_select, because its backward adds in parallel, unlike that of indexing
    rows_PB = similarities_BB.index_select(0, query_P)
    ahead_PB = ((rows_PB - rows_PB.gather(1, positive_P[:, None])) / temperature).sigmoid()
    positives_before_P = None
    if among_positives:
        others_PB = same_BB[query_P].scatter(1, positive_P[:, None], False)
        positives_before_P = (ahead_PB * others_PB).sum(1)
    return RankedPositives(
        negatives_before_P=(ahead_PB * different_BB[query_P]).sum(1),
        positives_before_P=positives_before_P,
        query_P=query_P,
        exists_P=exists_P,
        positives_B=same_BB.sum(1),
    )


VARIANTS: dict[str, Callable[[torch.Tensor, float, float], torch.Tensor]] = {
    "O": lambda before, bound, alpha: before,
    "Iu": lambda before, bound, alpha: (1 + before) * before.log1p(),
    "Ib": lambda before, bound, alpha: (bound * before - (bound * before).log1p()) / bound**2,
    "Ds": lambda before, bound, alpha: before.log1p(),
    # 1 − (1+R)^−alpha, accurate for the small R of a good ranking
    "Dq": lambda before, bound, alpha: -(-alpha * before.log1p()).expm1(),
}
"""Penalty of each PNP variant, as a function of R (negatives before a positive), bound and alpha."""


@declared("pnp")
class PNP(Loss):
    """f by ``variant``: O: R; Iu: (1+R) log(1+R); Ib: (bR − log(1+bR))/b²; Ds: log(1+R); Dq: 1 − (1+R)^−alpha.

    b is ``bound``. A query without positives is ignored. As in the paper, whose retrieval set is all other instances,
    the query is not its own positive. In the authors' code it is: its term is f(0) = 0 (up to the sigmoid's tail) and
    the mean is over one more, so for n images of each class the loss is (n−1)/n of this one, 3/4 in the paper's
    batches. Steps of Adam do not depend on that factor, but weight decay has 4/3 of its weight there.

    Iu is eq. 7, as in the authors' code. Eq. 6, printed as its derivative, belongs to another function: log(1+R) is the
    derivative of (1+R) log(1+R) − R, and that of eq. 7 is 1 + log(1+R). So at R = 0 Iu has O's derivative and not 0, as
    the text claims: unlike Ib's, its gradient does not vanish as a ranking becomes correct, and no learning rate
    compensates for that.
    """

    variant: Annotated[str, Among(VARIANTS)]
    temperature: Positive
    bound: Positive
    alpha: Annotated[float, Bounds(ge=1)]

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        pairs = ranked_positives(
            cosines(embeddings_BD), labels_B,
            temperature=self.temperature, among_positives=False, most=self.most_pairs,
        )  # fmt: skip
        return pairs.mean_of_query_means(self.penalty(pairs.negatives_before_P))

    def penalty(self, negatives_before: torch.Tensor) -> torch.Tensor:
        """Return f(R), elementwise."""
        return VARIANTS[self.variant](negatives_before, self.bound, self.alpha)


@declared("smooth_ap")
class SmoothAP(Loss):
    """R(i,·) sums over the query's other positives P or its negatives N.

    The query is not its own positive, and a query without positives is ignored.
    """

    temperature: Positive

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        pairs = ranked_positives(
            cosines(embeddings_BD), labels_B,
            temperature=self.temperature, among_positives=True, most=self.most_pairs,
        )  # fmt: skip
        assert pairs.positives_before_P is not None
        return pairs.mean_of_query_means(self.penalty(pairs.positives_before_P, pairs.negatives_before_P))

    @staticmethod
    def penalty(positives_before: torch.Tensor, negatives_before: torch.Tensor) -> torch.Tensor:
        """Return R(i,N) / (1 + R(i,P) + R(i,N)), elementwise."""
        return negatives_before / (1 + positives_before + negatives_before)


@declared("topk_precision")
class TopKPrecision(Loss):
    """P and N are a query's positives and negatives that are misplaced in the ranking by ŝ.

    The ideal first k are the first min(k, n₊) positives and, if n₊ < k (case 1 of the paper, otherwise case 2), the
    first k − n₊ negatives. In both cases Σ_N ŝ − Σ_P ŝ is the sum of ŝ over the first k minus that over the ideal first
    k. A query without positives gives 0. P and N have the same size, and |N| over all queries is the number of triplets
    used, as in the paper's section 4.5.

    Algorithm 1 sums over the queries; the default is the mean over all of them (:data:`Reduction`). With the sum,
    Adam's weight decay would weigh B times less. The authors' code averages the queries of each class and sums over
    the classes, so the queries of a class with fewer images in the batch weigh more. It also has terms that the paper
    does not mention: (1/20) log(1 + Σ e^{40(ŝ − 1/2)}) beside each sum over a first k, and a tenth of the Frobenius
    distance between the embeddings' covariance and the identity. Its margin is 0.05, and 0.2 on Stanford Online
    Products, where section 4.4 has 0.1. This class follows the paper.
    """

    margin: NotNegative
    k: Annotated[int, Bounds(ge=1, whole=True)]
    reduction: Reduced = "mean"

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        terms_B = self.terms(cosines(embeddings_BD), *same_and_different(labels_B))
        return reduced(terms_B.sum(), len(terms_B), self.reduction)

    def terms(self, similarities_QB: torch.Tensor, same_QB: torch.Tensor, different_QB: torch.Tensor) -> torch.Tensor:
        """Return the loss of each query [Q], given masks of its positives and negatives."""
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
