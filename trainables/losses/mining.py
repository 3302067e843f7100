"""Mining of pairs and triplets in a batch, without gradients.

Random choices use torch's default generator of the device, which a training seeds. No shape depends on values on the
device, for which the host would have to wait: what was not mined is masked, and the number of pairs is known from the
labels.

Shapes: B batch, T triplets, P pairs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor


class Triplets(NamedTuple):
    """Anchors, positives and negatives, as positions in the batch [T], and a mask of those that were mined."""

    anchor_T: Tensor
    positive_T: Tensor
    negative_T: Tensor
    mined_T: Tensor


class PositivePairs(NamedTuple):
    """Anchors and positives, as positions in the batch [P], and a mask of those that exist."""

    anchor_P: Tensor
    positive_P: Tensor
    exists_P: Tensor


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """The pairs of a batch: cosine similarities, and masks of positives and negatives, which exclude a sample itself.

    ``dimensions`` are those of the embeddings. ``most`` is at least the number of positive pairs, None if it is not
    known.
    """

    similarities_BB: Tensor
    same_BB: Tensor
    different_BB: Tensor
    dimensions: int
    most: int | None = None

    def detached(self) -> "Pairs":
        """Return the pairs without gradients, for a miner."""
        return replace(self, similarities_BB=self.similarities_BB.detach())

    def positives(self, *, once: bool = False) -> PositivePairs:
        """Return each anchor with each of its positives, in the order of the batch; with ``once`` each pair once.

        There are ``most`` entries, or half as many. If it is None the existing ones are counted: the host waits.
        """
        same_BB = self.same_BB.triu(1) if once else self.same_BB
        if self.most is None:
            anchor_P, positive_P = same_BB.nonzero(as_tuple=True)
            return PositivePairs(anchor_P, positive_P, torch.ones_like(anchor_P, dtype=torch.bool))
        size = self.most // 2 if once else self.most
        anchor_P, positive_P = torch.nonzero_static(same_BB, size=size, fill_value=0).unbind(1)
        return PositivePairs(anchor_P, positive_P, anchor_P != positive_P)  # a sample is never its own positive


Miner = Callable[[Pairs], Triplets]


def most_pairs(batches: Iterable[Tensor]) -> int:
    """Return the largest number of pairs of an anchor and a positive in a batch, given the batches' labels."""
    counts = (labels_B.unique(return_counts=True)[1] for labels_B in batches)
    return max(int((count_C * (count_C - 1)).sum()) for count_C in counts)


def _less(left: Tensor, right: Tensor) -> Tensor:
    """Return left < right by more than rounding, so that duplicates tie wherever they are in the batch."""
    return left < right - 8 * torch.finfo(left.dtype).eps


def all_triplets(pairs: Pairs) -> Triplets:
    """Return each anchor with each positive and each negative."""
    anchor_P, positive_P, exists_P = pairs.positives()
    mined_PB = pairs.different_BB[anchor_P] & exists_P[:, None]
    samples, each = mined_PB.shape[1], mined_PB.numel()
    negative_T = torch.arange(samples, device=mined_PB.device).repeat(len(mined_PB))
    anchor_T, positive_T = (part_P.repeat_interleave(samples, output_size=each) for part_P in (anchor_P, positive_P))
    return Triplets(anchor_T, positive_T, negative_T, mined_PB.flatten())


def semi_hard(pairs: Pairs) -> Triplets:
    """Return for each anchor and positive the most similar n with S_an < S_ap, if any (Psomas, eq. 2.20)."""
    positives = pairs.positives()
    rows_PB = pairs.similarities_BB[positives.anchor_P]
    less_PB = _less(rows_PB, rows_PB.gather(1, positives.positive_P[:, None]))
    return _best(positives, rows_PB, pairs.different_BB[positives.anchor_P] & less_PB)


def hard(pairs: Pairs) -> Triplets:
    """Return for each anchor its least similar positive and most similar negative (Psomas, eq. 2.18-2.19)."""
    return Triplets(
        torch.arange(len(pairs.same_BB), device=pairs.same_BB.device),
        torch.where(pairs.same_BB, pairs.similarities_BB, torch.inf).argmin(1),
        torch.where(pairs.different_BB, pairs.similarities_BB, -torch.inf).argmax(1),
        pairs.same_BB.any(1) & pairs.different_BB.any(1),
    )


def uniform(pairs: Pairs) -> Triplets:
    """Sample for each anchor and positive one of the anchor's negatives uniformly."""
    return _sampled(pairs, torch.zeros_like(pairs.similarities_BB), pairs.different_BB)


CUTOFF, FARTHEST = 0.5, 1.4
"""Distances that bound those of :func:`distance_weighted`, from the code of Wu et al."""


def distance_weighted(pairs: Pairs) -> Triplets:
    """Sample for each anchor and positive one of the anchor's negatives, weighted by its distance.

    On the unit sphere in D dimensions distances have the density q(d) ∝ d^{D−2} (1 − d²/4)^{(D−3)/2}. A negative is
    drawn with weight 1/q(max(d, CUTOFF)), and only from within ``FARTHEST`` if any is that near (Wu et al., Sampling
    Matters in Deep Embedding Learning, section 3).
    """
    squares_BB = (2 - 2 * pairs.similarities_BB).clamp(min=CUTOFF**2)
    near_BB = squares_BB < FARTHEST**2
    # antipodal points have density 0, which would give them infinite weight
    remainder_BB = (1 - squares_BB / 4).clamp(min=1e-8)
    log_density_BB = (pairs.dimensions - 2) / 2 * squares_BB.log() + (pairs.dimensions - 3) / 2 * remainder_BB.log()
    some_near_B1 = (near_BB & pairs.different_BB).any(1, keepdim=True)
    return _sampled(pairs, -log_density_BB, pairs.different_BB & (near_BB | ~some_near_B1))


BOUNDARY = 5
"""Ranks above the boundary of :func:`top_k` (Lu et al., section 4.4)."""


def misplaced(scores_BB: Tensor, pairs: Pairs, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rank each anchor's samples by ``scores_BB`` and find the misplaced ones (Lu et al., eq. 6-7 and 9-10).

    These are positives behind the first k ranks that belong to them, and as many negatives before that they should
    replace. Samples with one score are in the order of the batch.

    Returns:
        the samples by rank, and masks of the late positives and of the early negatives among them, all [B, B].
    """
    order_BB = scores_BB.masked_fill(~(pairs.same_BB | pairs.different_BB), -torch.inf)
    order_BB = order_BB.argsort(stable=True, dim=1, descending=True)
    same_BB, different_BB = pairs.same_BB.gather(1, order_BB), pairs.different_BB.gather(1, order_BB)
    first_B = torch.arange(order_BB.shape[1], device=order_BB.device) < k
    late_BB = same_BB & ~first_B & (same_BB.cumsum(1) <= k)
    early_BB = different_BB & first_B & (different_BB.cumsum(1) > k - same_BB.sum(1, keepdim=True))
    return order_BB, late_BB, early_BB


def top_k(pairs: Pairs) -> Triplets:
    """Return for each anchor the :func:`misplaced` positives, each with a misplaced negative (Lu et al., section 5).

    They are paired in the order of the ranking, which has no margin.
    """
    order_BB, late_BB, early_BB = misplaced(pairs.similarities_BB, pairs, BOUNDARY)
    # as many late ones as early ones, which are at most BOUNDARY: both come first, in the order of the ranking
    late_BK, early_BK = (
        found_BB.byte().argsort(stable=True, dim=1, descending=True)[:, :BOUNDARY] for found_BB in (late_BB, early_BB)
    )
    anchor_BK = torch.arange(len(order_BB), device=order_BB.device)[:, None].expand_as(late_BK)
    return Triplets(
        anchor_BK.flatten(),
        order_BB.gather(1, late_BK).flatten(),
        order_BB.gather(1, early_BK).flatten(),
        late_BB.gather(1, late_BK).flatten(),
    )


def _sampled(pairs: Pairs, log_weights_BB: Tensor, allowed_BB: Tensor) -> Triplets:
    """Sample a negative for each positive pair by weight: the largest of log weight + Gumbel noise."""
    positives = pairs.positives()
    log_weights_PB = log_weights_BB[positives.anchor_P]
    noise_PB = -torch.empty_like(log_weights_PB).exponential_().log()
    return _best(positives, log_weights_PB + noise_PB, allowed_BB[positives.anchor_P])


def _best(pairs: PositivePairs, scores_PB: Tensor, allowed_PB: Tensor) -> Triplets:
    """Return for each pair the allowed sample with the highest score, if it has one."""
    negative_P = torch.where(allowed_PB, scores_PB, -torch.inf).argmax(1)
    return Triplets(pairs.anchor_P, pairs.positive_P, negative_P, pairs.exists_P & allowed_PB.any(1))


MINERS: dict[str, Miner] = {
    "all": all_triplets,
    "semi_hard": semi_hard,
    "hard": hard,
    "distance_weighted": distance_weighted,
    "uniform": uniform,
    "top_k": top_k,
}
"""Triplet miners by name."""


def informative_pairs(pairs: Pairs, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return masks of the informative positives and negatives, as mined by Multi-Similarity.

    These are positives with S_ip < max_n S_in + epsilon and negatives with S_in > min_p S_ip − epsilon. An anchor
    without positives or without negatives has no informative pairs.
    """
    similarities_BB, same_BB, different_BB = pairs.similarities_BB.detach(), pairs.same_BB, pairs.different_BB
    hardest_negative_B1 = torch.where(different_BB, similarities_BB, -torch.inf).amax(1, keepdim=True)
    hardest_positive_B1 = torch.where(same_BB, similarities_BB, torch.inf).amin(1, keepdim=True)
    return (
        same_BB & _less(similarities_BB, hardest_negative_B1 + epsilon),
        different_BB & _less(hardest_positive_B1 - epsilon, similarities_BB),
    )
