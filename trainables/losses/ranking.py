"""Losses over the ranking of a batch; equations and defaults are in their rows of ``LOSSES``.

Shapes: B batch (each sample is a query), D embedding, P pairs of a query and one of its positives.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated

import torch

from trainables.common.rules import Bounds
from trainables.losses.loss import Among, NotNegative, Positive, Reduced, Used, declared, masked_sum, reduced
from trainables.losses.mining import Pairs, PositivePairs
from trainables.losses.pairs import PairLoss


class RankLoss(PairLoss):
    """Loss of R(i,·) = Σ_j σ((s_j − s_i)/temperature), a smooth count of samples ranked before a positive i of a query.

    R(i,N) sums over the query's negatives and R(i,P) over its other positives (PNP, eq. 2 and 3). The loss averages the
    penalties of a query's positives, and then the queries that have any.
    """

    temperature: Positive

    @abstractmethod
    def penalties(self, ahead_PB: torch.Tensor, positives: PositivePairs, pairs: Pairs) -> torch.Tensor:
        """Return the penalty of each positive [P], given the terms of R(i,·) for all samples of the batch."""

    def over(self, pairs: Pairs) -> torch.Tensor:
        query_P, positive_P, exists_P = positives = pairs.positives()
        # index_select, because its backward adds in parallel, unlike that of indexing
        rows_PB = pairs.similarities_BB.index_select(0, query_P)
        ahead_PB = ((rows_PB - rows_PB.gather(1, positive_P[:, None])) / self.temperature).sigmoid()
        penalties_P = self.penalties(ahead_PB, positives, pairs)
        positives_B = pairs.same_BB.sum(1)
        queries = (positives_B > 0).sum().clamp(min=1)
        return masked_sum(penalties_P / positives_B.clamp(min=1)[query_P], exists_P) / queries


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
class PNP(RankLoss):
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
    bound: Positive
    alpha: Annotated[float, Bounds(ge=1)]

    def penalties(self, ahead_PB: torch.Tensor, positives: PositivePairs, pairs: Pairs) -> torch.Tensor:
        return self.penalty((ahead_PB * pairs.different_BB[positives.anchor_P]).sum(1))

    def penalty(self, negatives_before: torch.Tensor) -> torch.Tensor:
        """Return f(R), elementwise."""
        return VARIANTS[self.variant](negatives_before, self.bound, self.alpha)


@declared("smooth_ap")
class SmoothAP(RankLoss):
    """R(i,·) sums over the query's other positives P or its negatives N.

    The query is not its own positive, and a query without positives is ignored.
    """

    def penalties(self, ahead_PB: torch.Tensor, positives: PositivePairs, pairs: Pairs) -> torch.Tensor:
        others_PB = pairs.same_BB[positives.anchor_P].scatter(1, positives.positive_P[:, None], False)
        negatives_PB = pairs.different_BB[positives.anchor_P]
        return self.penalty((ahead_PB * others_PB).sum(1), (ahead_PB * negatives_PB).sum(1))

    @staticmethod
    def penalty(positives_before: torch.Tensor, negatives_before: torch.Tensor) -> torch.Tensor:
        """Return R(i,N) / (1 + R(i,P) + R(i,N)), elementwise."""
        return negatives_before / (1 + positives_before + negatives_before)


@declared("topk_precision")
class TopKPrecision(PairLoss):
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

    def over(self, pairs: Pairs) -> torch.Tensor:
        same_BB, different_BB = pairs.same_BB, pairs.different_BB
        scores_BB = torch.where(different_BB, pairs.similarities_BB + self.margin, pairs.similarities_BB)
        with torch.no_grad():
            order_BB = scores_BB.masked_fill(~(same_BB | different_BB), -torch.inf)
            order_BB = order_BB.argsort(stable=True, dim=1, descending=True)
            same_in_order_BB, different_in_order_BB = same_BB.gather(1, order_BB), different_BB.gather(1, order_BB)
            rank_B = torch.arange(1, order_BB.shape[1] + 1, device=order_BB.device)
            in_first_k_BB = (rank_B <= self.k) & (same_in_order_BB | different_in_order_BB)
            ideal_BB = torch.where(
                same_in_order_BB,
                same_in_order_BB.cumsum(1) <= self.k,
                different_in_order_BB & (different_in_order_BB.cumsum(1) <= self.k - same_BB.sum(1, keepdim=True)),
            )
            misplaced_BB = in_first_k_BB.to(scores_BB.dtype) - ideal_BB.to(scores_BB.dtype)
            self.used = Used("triplets", (misplaced_BB > 0).sum())
        total = (scores_BB.gather(1, order_BB) * misplaced_BB).sum(1).sum()
        return reduced(total, len(order_BB), self.reduction)
