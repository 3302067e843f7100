"""Losses over pairs, triplets and rankings of a batch; equations and defaults are in their rows of ``LOSSES``.

Each class computes ``over``, the loss of each sample of a batch against the others.

Shapes: B batch, in a ranking each sample is a query, D embedding, T triplets, P pairs of an anchor or query and one of
its positives.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import threshold

from trainables.common.rules import Bounds, Count, NotNegative, OneOf, Positive
from trainables.losses.loss import (
    Cosine,
    Loss,
    Reduced,
    Reduction,
    Used,
    cosines,
    declared,
    log1p_sum_exp,
    masked_logsumexp,
    masked_sum,
    reduced,
    same_and_different,
)
from trainables.losses.mining import MINERS, Pairs, PositivePairs, informative_pairs, misplaced, top_k


def entries(values_BB: Tensor, row_T: Tensor, column_T: Tensor) -> Tensor:
    """Return the values [T] at rows and columns; the backward of indexing would sort these."""
    return values_BB.flatten().index_select(0, torch.add(column_T, row_T, alpha=values_BB.shape[1]))


class PairLoss(Loss):
    """Loss of the similarities between the samples of a batch: of pairs, triplets or rankings."""

    @abstractmethod
    def over(self, pairs: Pairs) -> Tensor:
        """Return the loss of the samples, each compared with its positives and negatives."""

    def of_pairs(self, terms_BB: Tensor, reduction: Reduction) -> Tensor:
        """Return the reduced terms of all pairs i < j, and set ``used``."""
        count = len(terms_BB) * (len(terms_BB) - 1) // 2
        self.used = Used("pairs", count)
        return reduced(terms_BB.triu(1).sum(), count, reduction)

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        same_BB, different_BB = same_and_different(labels_B)
        return self.over(
            Pairs(
                similarities_BB=cosines(embeddings_BD), same_BB=same_BB, different_BB=different_BB,
                dimensions=embeddings_BD.shape[1], most=self.most_pairs,
            )
        )  # fmt: skip


@declared("contrastive")
class Contrastive(PairLoss):
    """S_ij is the cosine similarity, and so is the margin; the default margin is from Psomas, Table 4."""

    margin: Cosine
    reduction: Reduced = "mean"

    def over(self, pairs: Pairs) -> Tensor:
        push_BB = (pairs.similarities_BB - self.margin).relu() * pairs.different_BB
        return self.of_pairs(push_BB - pairs.similarities_BB * pairs.same_BB, self.reduction)


@declared("triplet")
class Triplet(PairLoss):
    """``mining`` selects the triplets; ``reduction="mean"`` divides by their number, zero terms included."""

    margin: NotNegative
    mining: Annotated[str, OneOf(MINERS)]
    reduction: Reduced = "mean"

    def over(self, pairs: Pairs) -> Tensor:
        anchor_T, positive_T, negative_T, mined_T = MINERS[self.mining](pairs.detached())
        count = mined_T.sum()
        self.used = Used("triplets", count)
        similarities_BB = pairs.similarities_BB
        beyond_T = entries(similarities_BB, anchor_T, negative_T) - entries(similarities_BB, anchor_T, positive_T)
        return reduced(masked_sum((beyond_T + self.margin).relu(), mined_T), count, self.reduction)


@declared("margin")
class Margin(PairLoss):
    """D = √(2 − 2S) (``distance="euclidean"``), or −S compared with −beta (``distance="similarity"``).

    Mining "all" sums every pair i < j. "distance_weighted" sums each anchor with each positive and with a negative
    sampled for it, "top_k" with the samples beside the boundary (:func:`trainables.losses.mining.top_k`). The paper's
    code excludes zero terms from the mean, and this keeps them. The boundary ``beta`` is learned. In Psomas's eq. 2.23
    I is printed as 0 for negatives, which would leave them without a gradient; defaults are from Table 4.
    """

    beta_lr = 5e-5  # Psomas, Table 4

    margin: NotNegative
    beta: Annotated[Any, Bounds(ge=-2, le=2)]
    distance: Annotated[str, OneOf(("euclidean", "similarity"))]
    mining: Annotated[str, OneOf(("distance_weighted", "all", "top_k"))]
    reduction: Reduced = "mean"

    def prepare(self) -> None:
        self.beta = nn.Parameter(torch.tensor(float(self.beta)))

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """Return one group: beta, with its own learning rate and no weight decay, which would pull it to 0."""
        return [{"params": [self.beta], "lr": self.beta_lr, "weight_decay": 0.0}]

    def over(self, pairs: Pairs) -> Tensor:
        # the signed distance of each pair from the boundary, negative inside it
        if self.distance == "similarity":
            beyond_BB = self.beta - pairs.similarities_BB
        else:  # for equal embeddings: the root has no gradient at 0, and rounding may be negative
            floor = torch.finfo(pairs.similarities_BB.dtype).eps
            beyond_BB = threshold(2 - 2 * pairs.similarities_BB, floor, floor).sqrt() - self.beta
        if self.mining == "all":
            sign_BB = 2 * pairs.same_BB - 1
            return self.of_pairs((self.margin + sign_BB * beyond_BB).relu(), self.reduction)
        anchor_T, positive_T, negative_T, mined_T = MINERS[self.mining](pairs.detached())
        count = mined_T.sum()
        self.used = Used("triplets", count)
        pull_T = (self.margin + entries(beyond_BB, anchor_T, positive_T)).relu()
        push_T = (self.margin - entries(beyond_BB, anchor_T, negative_T)).relu()
        return reduced(masked_sum(pull_T + push_T, mined_T), 2 * count, self.reduction)


@declared("npair")
class NPair(PairLoss):
    """The last term limits lengths before normalisation. An anchor without a positive or a negative gives 0."""

    l2: NotNegative

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        return super().compute(embeddings_BD, labels_B) + self.l2 / len(labels_B) * embeddings_BD.square().sum()

    def over(self, pairs: Pairs) -> Tensor:
        # the double sum is a sum over positives times a sum over negatives; no exponential exceeds e
        positives_B = ((-pairs.similarities_BB).exp() * pairs.same_BB).sum(1)
        negatives_B = (pairs.similarities_BB.exp() * pairs.different_BB).sum(1)
        return (positives_B * negatives_B).log1p().mean()


@declared("lifted_structure")
class LiftedStructure(PairLoss):
    """An anchor without a positive or without a negative gives 0; ``reduction="mean"`` divides by all anchors.

    Mining "all" sums every pair, as eq. 2.21; "hard" only the informative ones (:func:`informative_pairs`, epsilon
    0.1), as Multi-Similarity and the code of its authors (Deep_Metric) and of Sampling Wisely. The default margin is
    from Psomas, Table 4.

    α is ``pos_scale`` and β ``neg_scale``, both 1 in eq. 2.21, where all negatives have about the same weight. The code
    of the thesis has α = 2 and β = 40, that of Sampling Wisely 10 for both. Both mine and neither has a margin or the
    [.]_+, which a margin of 2 turns off: the term is at least margin − 2.
    """

    margin: NotNegative
    mining: Annotated[str, OneOf(("all", "hard"))]
    pos_scale: Positive
    neg_scale: Positive
    reduction: Reduced = "mean"

    def over(self, pairs: Pairs) -> Tensor:
        similarities_BB, same_BB, different_BB = pairs.similarities_BB, pairs.same_BB, pairs.different_BB
        if self.mining == "hard":
            same_BB, different_BB = informative_pairs(pairs, epsilon=0.1)
        both_B1 = same_BB.any(1, keepdim=True) & different_BB.any(1, keepdim=True)
        self.used = Used("pairs", (both_B1 & (same_BB | different_BB)).sum())
        pull_B = masked_logsumexp(self.pos_scale * (self.margin - similarities_BB), same_BB, 1) / self.pos_scale
        push_B = masked_logsumexp(self.neg_scale * similarities_BB, different_BB, 1) / self.neg_scale
        return reduced((pull_B + push_B).relu().sum(), len(similarities_BB), self.reduction)


@declared("multi_similarity")
class MultiSimilarity(PairLoss):
    """α is ``pos_scale`` and β ``neg_scale``; with an ``epsilon`` only :func:`informative_pairs` are summed."""

    margin: Cosine
    pos_scale: Positive
    neg_scale: Positive
    epsilon: Annotated[float | None, Bounds(ge=0)]

    def over(self, pairs: Pairs) -> Tensor:
        same_BB, different_BB = pairs.same_BB, pairs.different_BB
        if self.epsilon is not None:
            same_BB, different_BB = informative_pairs(pairs, self.epsilon)
        self.used = Used("pairs", (same_BB | different_BB).sum())
        above_BB = pairs.similarities_BB - self.margin
        pull_B = log1p_sum_exp(torch.where(same_BB, -self.pos_scale * above_BB, -torch.inf), 1)
        push_B = log1p_sum_exp(torch.where(different_BB, self.neg_scale * above_BB, -torch.inf), 1)
        return (pull_B / self.pos_scale + push_B / self.neg_scale).mean()


@declared("angular")
class Angular(PairLoss):
    """The angle is in degrees. The mean is over all positive pairs of the batch, N are the samples of other classes.

    With mining "top_k" the pairs are each anchor's misplaced positives, and N its misplaced negatives
    (:func:`trainables.losses.mining.top_k`), as Lu et al., section 5, propose for this loss.
    """

    angle: Annotated[float, Bounds(gt=0, lt=90)]
    mining: Annotated[str, OneOf(("all", "top_k"))]

    def prepare(self) -> None:
        self._square = math.tan(math.radians(self.angle)) ** 2

    def over(self, pairs: Pairs) -> Tensor:
        different_BB = pairs.different_BB
        if self.mining == "top_k":
            anchor_P, positive_P, negative_P, some_P = top_k(pairs.detached())
            different_BB = torch.zeros_like(different_BB).index_put((anchor_P, negative_P), some_P)
            self.used = Used("pairs", some_P.sum())
        else:  # each pair once: the term is symmetric
            anchor_P, positive_P, some_P = pairs.positives(once=True)
        both_PB = pairs.similarities_BB.index_select(0, anchor_P) + pairs.similarities_BB.index_select(0, positive_P)
        pair_P1 = entries(pairs.similarities_BB, anchor_P, positive_P)[:, None]
        logits_PB = 4 * self._square * both_PB - 2 * (1 + self._square) * pair_P1
        terms_P = log1p_sum_exp(torch.where(different_BB[anchor_P], logits_PB, -torch.inf), 1)
        return reduced(masked_sum(terms_P, some_P), some_P.sum(), "mean")


# Rankings.


class RankLoss(PairLoss):
    """Loss of R(i,·) = Σ_j σ((s_j − s_i)/temperature), a smooth count of samples ranked before a positive i of a query.

    R(i,N) sums over the query's negatives and R(i,P) over its other positives (PNP, eq. 2 and 3). The loss averages the
    penalties of a query's positives, and then the queries that have any.
    """

    temperature: Positive

    @abstractmethod
    def penalties(self, ahead_PB: Tensor, positives: PositivePairs, pairs: Pairs) -> Tensor:
        """Return the penalty of each positive [P], given the terms of R(i,·) for all samples of the batch."""

    def over(self, pairs: Pairs) -> Tensor:
        query_P, positive_P, exists_P = positives = pairs.positives()
        # index_select, because its backward adds in parallel, unlike that of indexing
        rows_PB = pairs.similarities_BB.index_select(0, query_P)
        ahead_PB = ((rows_PB - rows_PB.gather(1, positive_P[:, None])) / self.temperature).sigmoid()
        penalties_P = self.penalties(ahead_PB, positives, pairs)
        positives_B = pairs.same_BB.sum(1)
        queries = (positives_B > 0).sum().clamp(min=1)
        return masked_sum(penalties_P / positives_B.clamp(min=1)[query_P], exists_P) / queries


VARIANTS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
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

    b is ``bound``. A query without positives is ignored. As in the paper the query is not its own positive. In the
    authors' code it is, with a term f(0) = 0 (up to the sigmoid's tail), so for n images of each class the loss is
    (n−1)/n of this one, 3/4 in the paper's batches: Adam's weight decay has 4/3 of its weight there.

    Iu is eq. 7, as in the authors' code. Eq. 6, printed as its derivative, is that of (1+R) log(1+R) − R; that of eq. 7
    is 1 + log(1+R). So at R = 0 Iu has O's derivative and not 0, as the text claims: unlike Ib's, its gradient does not
    vanish as a ranking becomes correct.
    """

    variant: Annotated[str, OneOf(VARIANTS)]
    bound: Positive
    alpha: Annotated[float, Bounds(ge=1)]

    def penalties(self, ahead_PB: Tensor, positives: PositivePairs, pairs: Pairs) -> Tensor:
        return self.penalty((ahead_PB * pairs.different_BB[positives.anchor_P]).sum(1))

    def penalty(self, negatives_before: Tensor) -> Tensor:
        """Return f(R), elementwise."""
        return VARIANTS[self.variant](negatives_before, self.bound, self.alpha)


@declared("smooth_ap")
class SmoothAP(RankLoss):
    """R(i,·) sums over the query's other positives P or its negatives N; a query without positives is ignored."""

    def penalties(self, ahead_PB: Tensor, positives: PositivePairs, pairs: Pairs) -> Tensor:
        others_PB = pairs.same_BB[positives.anchor_P].scatter(1, positives.positive_P[:, None], False)
        negatives_PB = pairs.different_BB[positives.anchor_P]
        return self.penalty((ahead_PB * others_PB).sum(1), (ahead_PB * negatives_PB).sum(1))

    @staticmethod
    def penalty(positives_before: Tensor, negatives_before: Tensor) -> Tensor:
        """Return R(i,N) / (1 + R(i,P) + R(i,N)), elementwise."""
        return negatives_before / (1 + positives_before + negatives_before)


@declared("topk_precision")
class TopKPrecision(PairLoss):
    """P and N are a query's positives and negatives that are misplaced in the ranking by ŝ.

    The ideal first k are the first min(k, n₊) positives and, if n₊ < k (case 1 of the paper, otherwise case 2), the
    first k − n₊ negatives. A query without positives gives 0. P and N have the same size, and |N| over all queries is
    the number of triplets used, as in the paper's section 4.5.

    Algorithm 1 sums over the queries; the default is their mean (:data:`Reduction`). The authors' code averages the
    queries of each class and sums over the classes. It also has terms that the paper does not mention:
    (1/20) log(1 + Σ e^{40(ŝ − 1/2)}) beside each sum over a first k, and a tenth of the Frobenius distance between the
    embeddings' covariance and the identity. Its margin is 0.05, and 0.2 on Stanford Online Products, where section 4.4
    has 0.1. This class follows the paper.
    """

    margin: NotNegative
    k: Count
    reduction: Reduced = "mean"

    def over(self, pairs: Pairs) -> Tensor:
        scores_BB = torch.where(pairs.different_BB, pairs.similarities_BB + self.margin, pairs.similarities_BB)
        order_BB, late_BB, early_BB = misplaced(scores_BB.detach(), pairs, self.k)
        self.used = Used("triplets", early_BB.sum())
        sign_BB = early_BB.to(scores_BB.dtype) - late_BB.to(scores_BB.dtype)
        return reduced((scores_BB.gather(1, order_BB) * sign_BB).sum(1).sum(), len(order_BB), self.reduction)
