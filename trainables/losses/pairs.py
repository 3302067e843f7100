"""Losses over pairs and triplets of a batch; equations and defaults are in their rows of ``LOSSES``.

Each class computes ``over``, the loss of each sample of a batch against the others.

Shapes: B batch, D embedding, T triplets, P positive pairs.
"""

import math
from abc import abstractmethod
from typing import Annotated, Any

import torch
from torch import nn
from torch.nn.functional import threshold

from trainables.common.rules import Bounds
from trainables.losses.loss import (
    Among,
    Cosine,
    Loss,
    NotNegative,
    Positive,
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
from trainables.losses.mining import MINERS, Pairs, informative_pairs, top_k


def entries(values_BB: torch.Tensor, row_T: torch.Tensor, column_T: torch.Tensor) -> torch.Tensor:
    """Return the values [T] at rows and columns; the backward of indexing would sort these."""
    return values_BB.flatten().index_select(0, torch.add(column_T, row_T, alpha=values_BB.shape[1]))


class PairLoss(Loss):
    """Loss of the similarities between the samples of a batch: of pairs, triplets or rankings."""

    @abstractmethod
    def over(self, pairs: Pairs) -> torch.Tensor:
        """Return the loss of the samples, each compared with its positives and negatives."""

    def of_pairs(self, terms_BB: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        """Return the reduced terms of all pairs i < j, and set ``used``."""
        count = len(terms_BB) * (len(terms_BB) - 1) // 2
        self.used = Used("pairs", count)
        return reduced(terms_BB.triu(1).sum(), count, reduction)

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
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

    def over(self, pairs: Pairs) -> torch.Tensor:
        push_BB = (pairs.similarities_BB - self.margin).relu() * pairs.different_BB
        return self.of_pairs(push_BB - pairs.similarities_BB * pairs.same_BB, self.reduction)


@declared("triplet")
class Triplet(PairLoss):
    """``mining`` selects the triplets; ``reduction="mean"`` divides by their number, zero terms included."""

    margin: NotNegative
    mining: Annotated[str, Among(MINERS)]
    reduction: Reduced = "mean"

    def over(self, pairs: Pairs) -> torch.Tensor:
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
    distance: Annotated[str, Among(("euclidean", "similarity"))]
    mining: Annotated[str, Among(("distance_weighted", "all", "top_k"))]
    reduction: Reduced = "mean"

    def prepare(self) -> None:
        self.beta = nn.Parameter(torch.tensor(float(self.beta)))

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """Return one group: beta, with its own learning rate and no weight decay, which would pull it to 0."""
        return [{"params": [self.beta], "lr": self.beta_lr, "weight_decay": 0.0}]

    def over(self, pairs: Pairs) -> torch.Tensor:
        beyond_BB = self._beyond(pairs.similarities_BB)
        if self.mining == "all":
            sign_BB = 2 * pairs.same_BB - 1
            return self.of_pairs((self.margin + sign_BB * beyond_BB).relu(), self.reduction)
        anchor_T, positive_T, negative_T, mined_T = MINERS[self.mining](pairs.detached())
        count = mined_T.sum()
        self.used = Used("triplets", count)
        pull_T = (self.margin + entries(beyond_BB, anchor_T, positive_T)).relu()
        push_T = (self.margin - entries(beyond_BB, anchor_T, negative_T)).relu()
        return reduced(masked_sum(pull_T + push_T, mined_T), 2 * count, self.reduction)

    def _beyond(self, similarities_BB: torch.Tensor) -> torch.Tensor:
        """Return the signed distance of each pair from the boundary, negative inside it."""
        if self.distance == "similarity":
            return self.beta - similarities_BB
        # for equal embeddings: the root has no gradient at 0, and rounding may be negative
        floor = torch.finfo(similarities_BB.dtype).eps
        return threshold(2 - 2 * similarities_BB, floor, floor).sqrt() - self.beta


@declared("npair")
class NPair(PairLoss):
    """The last term limits the lengths of embeddings before normalisation.

    An anchor without a positive or without a negative gives 0. The default is from Psomas, Table 4.
    """

    l2: NotNegative

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        return super().compute(embeddings_BD, labels_B) + self.l2 / len(labels_B) * embeddings_BD.square().sum()

    def over(self, pairs: Pairs) -> torch.Tensor:
        # the double sum is a sum over positives times a sum over negatives; no exponential exceeds e
        positives_B = ((-pairs.similarities_BB).exp() * pairs.same_BB).sum(1)
        negatives_B = (pairs.similarities_BB.exp() * pairs.different_BB).sum(1)
        return (positives_B * negatives_B).log1p().mean()


@declared("lifted_structure")
class LiftedStructure(PairLoss):
    """An anchor without a positive or without a negative gives 0; ``reduction="mean"`` divides by all anchors.

    Mining "all" sums every pair, as eq. 2.21; "hard" only the informative ones (:func:`informative_pairs`, epsilon
    0.1). Psomas, Table 5, has "hard" here and for Multi-Similarity, where it means those pairs. The code of that loss's
    authors (Deep_Metric) mines them for both losses, and that of Sampling Wisely for this one, with this epsilon.
    The default margin is from Psomas, Table 4.

    α is ``pos_scale`` and β ``neg_scale``, both 1 in eq. 2.21. At 1 all negatives have about the same weight. The code
    of the thesis has α = 2 and β = 40, that of Sampling Wisely 10 for both. Both mine and neither has a margin or the
    [.]_+, which a margin of 2 turns off: the term is at least margin − 2.
    """

    margin: NotNegative
    mining: Annotated[str, Among(("all", "hard"))]
    pos_scale: Positive
    neg_scale: Positive
    reduction: Reduced = "mean"

    def over(self, pairs: Pairs) -> torch.Tensor:
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
    """α is ``pos_scale`` and β ``neg_scale``.

    With an ``epsilon`` only informative pairs are summed (:func:`informative_pairs`); with None all pairs. Defaults are
    from Psomas, Table 4.
    """

    margin: Cosine
    pos_scale: Positive
    neg_scale: Positive
    epsilon: Annotated[float | None, Bounds(ge=0)]

    def over(self, pairs: Pairs) -> torch.Tensor:
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
    mining: Annotated[str, Among(("all", "top_k"))]

    def prepare(self) -> None:
        self._square = math.tan(math.radians(self.angle)) ** 2

    def over(self, pairs: Pairs) -> torch.Tensor:
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
