"""Losses over pairs and triplets of a batch."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus

from trainables.losses.base import (
    REDUCTIONS,
    Loss,
    Reduction,
    Used,
    choice,
    cosines,
    log1p_sum_exp,
    masked_logsumexp,
    real,
    reduced,
    same_and_different,
    sizes,
)
from trainables.losses.mining import MINERS, distance_weighted, informative_pairs
from trainables.mistakes import raise_if_any

# Contrastive: samples of a class are drawn together, those of two classes pushed below a margin.
#
# Shapes: B batch, D embedding.


class Contrastive(Loss):
    """Σ_{i<j} −S_ij for two samples of a class and [S_ij − margin]₊ for samples of two classes.

    The margin is a cosine. Source: Psomas, Metric Learning: A Deep Dive, eq. 2.15 and Table 4.
    """

    static_shapes = True

    def __init__(
        self, *, num_classes: int, embedding_dim: int, margin: float = 0.5, reduction: Reduction = "mean"
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=-1, at_most=1),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.reduction = margin, reduction

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB = labels_B[:, None] == labels_B[None, :]
        terms_BB = torch.where(same_BB, -similarities_BB, (similarities_BB - self.margin).relu())
        pairs = len(labels_B) * (len(labels_B) - 1) // 2
        self.used = Used("pairs", pairs)
        return reduced(terms_BB.triu(1).sum(), pairs, self.reduction)


# Triplet: an anchor's positive must be more similar than its negative, by a margin.
#
# Shapes: B batch, D embedding, A anchors, T triplets.


class Triplet(Loss):
    """Σ over the triplets that ``mining`` finds of [S_an − S_ap + margin]₊.

    ``reduction="mean"`` divides by the number of triplets found, those of loss 0 too. Source: Psomas, Metric
    Learning: A Deep Dive, eq. 2.17 to 2.20 and Table 4.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float = 0.1,
        mining: str = "semi_hard",
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

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        terms_T = self.terms(cosines(embeddings_BD), *same_and_different(labels_B))
        self.used = Used("triplets", len(terms_T))
        return reduced(terms_T.sum(), len(terms_T), self.reduction)

    def terms(self, similarities_AB: torch.Tensor, same_AB: torch.Tensor, different_AB: torch.Tensor) -> torch.Tensor:
        """The loss of each triplet that is mined for some anchors, whose positives and negatives two masks tell."""
        anchor_T, positive_T, negative_T = self._mine(similarities_AB.detach(), same_AB, different_AB)
        return (similarities_AB[anchor_T, negative_T] - similarities_AB[anchor_T, positive_T] + self.margin).relu()


# Margin: pairs on the wrong side of a learned boundary, or too near it.
#
# Shapes: B batch, D embedding, T triplets.

DISTANCES = ("euclidean", "similarity")
MARGIN_MINING = ("distance_weighted", "all")


class Margin(Loss):
    """Σ over pairs of [margin + I·(D_ij − beta)]₊, I = +1 for samples of a class and −1 for those of two.

    D = √(2 − 2S) (``distance="euclidean"``), or −S against −beta (``distance="similarity"``). Mining "all" sums
    every pair i < j; "distance_weighted" sums each anchor with each positive and with a negative drawn for it,
    where the paper's code leaves pairs of loss 0 out of the mean and this keeps them. The boundary ``beta`` is
    learned. Source: Wu et al., Sampling Matters in Deep Embedding Learning; Psomas, Metric Learning: A Deep Dive,
    eq. 2.23 (where a printed I of 0 leaves negatives without a gradient) and Table 4.
    """

    beta_lr = 5e-5  # Psomas, Table 4

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float = 0.5,
        beta: float = 1.2,
        distance: str = "euclidean",
        mining: str = "distance_weighted",
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
        self._mine = distance_weighted(embedding_dim)
        self.static_shapes = mining == "all"

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """Beta, at its own learning rate and without decay, which would pull the boundary to 0."""
        return [{"params": [self.beta], "lr": self.beta_lr, "weight_decay": 0.0}]

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        beyond_BB = self._beyond(similarities_BB)
        if self.mining == "all":
            pairs = len(labels_B) * (len(labels_B) - 1) // 2
            self.used = Used("pairs", pairs)
            terms_BB = (self.margin + torch.where(same_BB, beyond_BB, -beyond_BB)).relu()
            return reduced(terms_BB.triu(1).sum(), pairs, self.reduction)
        anchor_T, positive_T, negative_T = self._mine(similarities_BB.detach(), same_BB, different_BB)
        self.used = Used("triplets", len(anchor_T))
        pull_T = (self.margin + beyond_BB[anchor_T, positive_T]).relu()
        push_T = (self.margin - beyond_BB[anchor_T, negative_T]).relu()
        return reduced((pull_T + push_T).sum(), 2 * len(anchor_T), self.reduction)

    def _beyond(self, similarities_BB: torch.Tensor) -> torch.Tensor:
        """How far apart two samples are beyond the boundary; negative within it."""
        if self.distance == "similarity":
            return self.beta - similarities_BB
        # equal embeddings: the root has no gradient at 0, and rounding may go below
        floor = torch.finfo(similarities_BB.dtype).eps
        return (2 - 2 * similarities_BB).clamp(min=floor).sqrt() - self.beta


# N-pair: every positive of an anchor against every negative, in one logarithm.
#
# Shapes: B batch, D embedding.


class NPair(Loss):
    """1/B Σ_i log(1 + Σ_{j∈P_i, k∈N_i} e^{S_ik−S_ij}) + l2/B Σ_i ‖x_i‖².

    The last term holds the embeddings' lengths before normalisation. An anchor without a positive or without a
    negative gives 0. Source: Psomas, Metric Learning: A Deep Dive, eq. 2.22 and Table 4.
    """

    static_shapes = True

    def __init__(self, *, num_classes: int, embedding_dim: int, l2: float = 0.02) -> None:
        raise_if_any([*sizes(num_classes, embedding_dim), *real("l2", l2, at_least=0)])
        super().__init__()
        self.l2 = l2

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        # the double sum is the product of a sum over positives and one over negatives
        logits_B = masked_logsumexp(-similarities_BB, same_BB, 1) + masked_logsumexp(similarities_BB, different_BB, 1)
        lengths = embeddings_BD.square().sum(1).mean()
        return softplus(logits_B, threshold=40).mean() + self.l2 * lengths


# Lifted structure: an anchor's positives against its negatives, each as a soft maximum.
#
# Shapes: B batch, D embedding.

LIFTED_MINING = ("all", "hard")
EPSILON = 0.1


class LiftedStructure(Loss):
    """Σ_i [log Σ_{p∈P_i} e^{margin−S_ip} + log Σ_{n∈N_i} e^{S_in}]₊.

    An anchor without a positive or without a negative gives 0; ``reduction="mean"`` divides by all anchors.

    Mining "all" sums every pair, as eq. 2.21; "hard" the informative ones (:func:`informative_pairs`, epsilon 0.1).
    Psomas, Table 5, has "hard" here and for Multi-Similarity, where it means those pairs. The code of that loss's
    authors (Deep_Metric) mines them for both losses, and that of Sampling Wisely for this one, with this epsilon.
    Source: Psomas, Metric Learning: A Deep Dive, eq. 2.21 and Tables 4 and 5.
    """

    static_shapes = True

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        margin: float = 0.5,
        mining: str = "all",
        reduction: Reduction = "mean",
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0),
                *choice("mining", mining, LIFTED_MINING),
                *choice("reduction", reduction, REDUCTIONS),
            ]
        )
        super().__init__()
        self.margin, self.mining, self.reduction = margin, mining, reduction

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        if self.mining == "hard":
            same_BB, different_BB = informative_pairs(similarities_BB, same_BB, different_BB, EPSILON)
        both_B1 = same_BB.any(1, keepdim=True) & different_BB.any(1, keepdim=True)
        self.used = Used("pairs", (both_B1 & (same_BB | different_BB)).sum())
        pull_B = masked_logsumexp(self.margin - similarities_BB, same_BB, 1)
        push_B = masked_logsumexp(similarities_BB, different_BB, 1)
        return reduced((pull_B + push_B).relu().sum(), len(labels_B), self.reduction)


# Multi-Similarity: positives and negatives of an anchor, each weighed among their likes.
#
# Shapes: B batch, D embedding.


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


# Angular: the angle at a negative of the triangle that it makes with a positive pair.
#
# Shapes: B batch, D embedding, P positive pairs.


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
