"""Losses over pairs and triplets of a batch; equations and defaults are in their rows of ``LOSSES``.

Each class computes ``over``, the loss of anchors against samples, which are the batch itself or a memory of earlier
batches (:mod:`trainables.losses.memory`).

Shapes: B batch, D embedding, A anchors, M samples, T triplets, P positive pairs.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus

from trainables.losses.base import (
    REDUCTIONS,
    Reduction,
    Used,
    choice,
    declared,
    log1p_sum_exp,
    masked_logsumexp,
    masked_sum,
    real,
    reduced,
    sizes,
)
from trainables.losses.memory import PairLoss, Pairs
from trainables.losses.mining import MINERS, informative_pairs, top_k
from trainables.mistakes import raise_if_any


@declared("contrastive")
class Contrastive(PairLoss):
    """S_ij is the cosine similarity, and so is the margin; the default margin is from Psomas, Table 4."""

    def __init__(self, *, num_classes: int, embedding_dim: int, margin: float, reduction: Reduction = "mean") -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=-1, at_most=1),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.reduction = margin, reduction

    def over(self, pairs: Pairs) -> torch.Tensor:
        same_AM, different_AM = pairs.once()
        count = (same_AM | different_AM).sum()
        self.used = Used("pairs", count)
        push_AM = torch.where(different_AM, (pairs.similarities_AM - self.margin).relu(), 0)
        return reduced(torch.where(same_AM, -pairs.similarities_AM, push_AM).sum(), count, self.reduction)


@declared("triplet")
class Triplet(PairLoss):
    """``mining`` selects the triplets; ``reduction="mean"`` divides by their number, zero terms included."""

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float,
        mining: str,
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *choice("mining", mining, MINERS),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.reduction = margin, reduction
        self._mine = MINERS[mining](embedding_dim)

    def over(self, pairs: Pairs) -> torch.Tensor:
        terms_T = self.terms(pairs.similarities_AM, pairs.same_AM, pairs.different_AM, pairs.most)
        assert self.used is not None
        return reduced(terms_T.sum(), self.used.count, self.reduction)

    def terms(
        self,
        similarities_AB: torch.Tensor,
        same_AB: torch.Tensor,
        different_AB: torch.Tensor,
        most: int | None = None,
    ) -> torch.Tensor:
        """Return the loss of each triplet mined for some anchors, and 0 for what was not mined; set ``used``.

        The masks are those of the anchors' positives and negatives, and ``most`` is at least the number of positives.
        """
        anchor_T, positive_T, negative_T, mined_T = self._mine(similarities_AB.detach(), same_AB, different_AB, most)
        self.used = Used("triplets", mined_T.sum())
        terms_T = (similarities_AB[anchor_T, negative_T] - similarities_AB[anchor_T, positive_T] + self.margin).relu()
        return torch.where(mined_T, terms_T, 0)


DISTANCES = ("euclidean", "similarity")
MARGIN_MINING = ("distance_weighted", "all", "top_k")


@declared("margin")
class Margin(PairLoss):
    """D = √(2 − 2S) (``distance="euclidean"``), or −S compared with −beta (``distance="similarity"``).

    Mining "all" sums every pair i < j. "distance_weighted" sums each anchor with each positive and with a negative
    sampled for it, "top_k" with the samples beside the boundary (:func:`trainables.losses.mining.top_k`). The paper's
    code excludes zero terms from the mean, and this keeps them. The boundary ``beta`` is learned. In Psomas's eq. 2.23
    I is printed as 0 for negatives, which would leave them without a gradient; defaults are from Table 4.
    """

    beta_lr = 5e-5  # Psomas, Table 4

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float,
        beta: float,
        distance: str,
        mining: str,
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *real("beta", beta, at_least=-2, at_most=2),
                *choice("distance", distance, DISTANCES),
                *choice("mining", mining, MARGIN_MINING),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.distance, self.mining, self.reduction = margin, distance, mining, reduction
        self.beta = nn.Parameter(torch.tensor(float(beta)))
        self._mine = MINERS[mining](embedding_dim)

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """Return one group: beta, with its own learning rate and no weight decay, which would pull it to 0."""
        return [{"params": [self.beta], "lr": self.beta_lr, "weight_decay": 0.0}]

    def over(self, pairs: Pairs) -> torch.Tensor:
        beyond_AM = self._beyond(pairs.similarities_AM)
        if self.mining == "all":
            same_AM, different_AM = pairs.once()
            count = (same_AM | different_AM).sum()
            self.used = Used("pairs", count)
            terms_AM = (self.margin + torch.where(same_AM, beyond_AM, -beyond_AM)).relu()
            return reduced(torch.where(same_AM | different_AM, terms_AM, 0).sum(), count, self.reduction)
        anchor_T, positive_T, negative_T, mined_T = self._mine(
            pairs.similarities_AM.detach(), pairs.same_AM, pairs.different_AM, pairs.most
        )
        count = mined_T.sum()
        self.used = Used("triplets", count)
        pull_T = (self.margin + beyond_AM[anchor_T, positive_T]).relu()
        push_T = (self.margin - beyond_AM[anchor_T, negative_T]).relu()
        return reduced(masked_sum(pull_T + push_T, mined_T), 2 * count, self.reduction)

    def _beyond(self, similarities_AM: torch.Tensor) -> torch.Tensor:
        """Return the signed distance of each pair from the boundary, negative inside it."""
        if self.distance == "similarity":
            return self.beta - similarities_AM
        # for equal embeddings: the root has no gradient at 0, and rounding may be negative
        floor = torch.finfo(similarities_AM.dtype).eps
        return (2 - 2 * similarities_AM).clamp(min=floor).sqrt() - self.beta


@declared("npair")
class NPair(PairLoss):
    """The last term limits the lengths of embeddings before normalisation.

    An anchor without a positive or without a negative gives 0. The default is from Psomas, Table 4.
    """

    def __init__(self, *, num_classes: int, embedding_dim: int, l2: float) -> None:
        raise_if_any([*sizes(num_classes, embedding_dim), *real("l2", l2, at_least=0)])
        super().__init__()
        self.l2 = l2

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        return super().compute(embeddings_BD, labels_B) + self.l2 * embeddings_BD.square().sum(1).mean()

    def over(self, pairs: Pairs) -> torch.Tensor:
        # the double sum is a sum over positives times a sum over negatives
        positives_A = masked_logsumexp(-pairs.similarities_AM, pairs.same_AM, 1)
        negatives_A = masked_logsumexp(pairs.similarities_AM, pairs.different_AM, 1)
        return softplus(positives_A + negatives_A, threshold=40).mean()


LIFTED_MINING = ("all", "hard")
EPSILON = 0.1


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

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float,
        mining: str,
        pos_scale: float,
        neg_scale: float,
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *choice("mining", mining, LIFTED_MINING),
                *real("pos_scale", pos_scale, above=0),
                *real("neg_scale", neg_scale, above=0),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.mining, self.reduction = margin, mining, reduction
        self.pos_scale, self.neg_scale = pos_scale, neg_scale

    def over(self, pairs: Pairs) -> torch.Tensor:
        similarities_AM, same_AM, different_AM = pairs.similarities_AM, pairs.same_AM, pairs.different_AM
        if self.mining == "hard":
            same_AM, different_AM = informative_pairs(similarities_AM, same_AM, different_AM, EPSILON)
        both_A1 = same_AM.any(1, keepdim=True) & different_AM.any(1, keepdim=True)
        self.used = Used("pairs", (both_A1 & (same_AM | different_AM)).sum())
        pull_A = masked_logsumexp(self.pos_scale * (self.margin - similarities_AM), same_AM, 1) / self.pos_scale
        push_A = masked_logsumexp(self.neg_scale * similarities_AM, different_AM, 1) / self.neg_scale
        return reduced((pull_A + push_A).relu().sum(), len(similarities_AM), self.reduction)


@declared("multi_similarity")
class MultiSimilarity(PairLoss):
    """α is ``pos_scale`` and β ``neg_scale``.

    With an ``epsilon`` only informative pairs are summed (:func:`informative_pairs`); with None all pairs. Defaults are
    from Psomas, Table 4.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float,
        pos_scale: float,
        neg_scale: float,
        epsilon: float | None,
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

    def over(self, pairs: Pairs) -> torch.Tensor:
        same_AM, different_AM = pairs.same_AM, pairs.different_AM
        if self.epsilon is not None:
            same_AM, different_AM = informative_pairs(pairs.similarities_AM, same_AM, different_AM, self.epsilon)
        self.used = Used("pairs", (same_AM | different_AM).sum())
        above_AM = pairs.similarities_AM - self.margin
        pull_A = log1p_sum_exp((-self.pos_scale * above_AM).masked_fill(~same_AM, -torch.inf), 1)
        push_A = log1p_sum_exp((self.neg_scale * above_AM).masked_fill(~different_AM, -torch.inf), 1)
        return (pull_A / self.pos_scale + push_A / self.neg_scale).mean()


ANGULAR_MINING = ("all", "top_k")


@declared("angular")
class Angular(PairLoss):
    """The angle is in degrees. The mean is over all positive pairs of the batch, N are the samples of other classes.

    With mining "top_k" the pairs are each anchor's misplaced positives, and N its misplaced negatives
    (:func:`trainables.losses.mining.top_k`), as Lu et al., section 5, propose for this loss.
    """

    def __init__(self, *, num_classes: int, embedding_dim: int, angle: float, mining: str) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("angle", angle, above=0, below=90),
                *choice("mining", mining, ANGULAR_MINING),
            ]
        )
        super().__init__()
        self.angle, self.mining = angle, mining

    def over(self, pairs: Pairs) -> torch.Tensor:
        different_AM = pairs.different_AM
        if self.mining == "top_k":
            anchor_P, positive_P, negative_P, some_P = top_k(
                pairs.similarities_AM.detach(), pairs.same_AM, different_AM
            )
            different_AM = torch.zeros_like(different_AM).index_put((anchor_P, negative_P), some_P)
            self.used = Used("pairs", some_P.sum())
        else:  # each pair once: the term is symmetric
            anchor_P, positive_P, some_P = pairs.positives_once()
        square = math.tan(math.radians(self.angle)) ** 2
        both_PM = pairs.similarities_AM.index_select(0, anchor_P) + pairs.of_samples(positive_P)
        pair_P1 = pairs.similarities_AM[anchor_P, positive_P][:, None]
        logits_PM = 4 * square * both_PM - 2 * (1 + square) * pair_P1
        terms_P = log1p_sum_exp(logits_PM.masked_fill(~different_AM[anchor_P], -torch.inf), 1)
        return reduced(masked_sum(terms_P, some_P), some_P.sum(), "mean")
