"""Losses of pairs, and the memory of earlier batches that they can compare a batch with (XBM).

Wang et al., Cross-Batch Memory for Embedding Learning (CVPR 2020), section 3 and Algorithm 1: the embeddings of a batch
replace the oldest ones in a queue, and a loss of pairs compares the batch with the whole queue, which gets no gradient.
As in the authors' code, the loss is that of the batch plus that of the queue, which holds the batch itself too.

Shapes: B batch, A anchors, M samples that they are compared with, D embedding, P positive pairs.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import nn

from trainables.losses.base import Loss, Used, same_and_different
from trainables.losses.mining import PositivePairs, positive_pairs
from trainables.unit import unit

EMPTY = -1
"""The label of a place in the memory without an embedding."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Anchors and the samples that they are compared with: cosine similarities, and masks of positives and negatives.

    The masks exclude an anchor itself, and empty places of a memory. ``samples_MD`` are the samples as unit vectors,
    None if they are the anchors. ``most`` is at least the number of positive pairs, None if it is not known.
    """

    similarities_AM: torch.Tensor
    same_AM: torch.Tensor
    different_AM: torch.Tensor
    samples_MD: torch.Tensor | None = None
    most: int | None = None

    @classmethod
    def in_batch(cls, unit_BD: torch.Tensor, labels_B: torch.Tensor, most: int | None = None) -> "Pairs":
        """Compare each sample of a batch with the others."""
        same_BB, different_BB = same_and_different(labels_B)
        return cls(similarities_AM=unit_BD @ unit_BD.T, same_AM=same_BB, different_AM=different_BB, most=most)

    @classmethod
    def with_memory(
        cls, unit_BD: torch.Tensor, labels_B: torch.Tensor, samples_MD: torch.Tensor, labels_M: torch.Tensor
    ) -> "Pairs":
        """Compare each sample of a batch with a memory, which begins with the batch itself."""
        same_BM = labels_B[:, None] == labels_M
        itself_BM = torch.eye(*same_BM.shape, dtype=torch.bool, device=labels_B.device)
        return cls(
            similarities_AM=unit_BD @ samples_MD.T,
            same_AM=same_BM & ~itself_BM,
            different_AM=~same_BM & (labels_M != EMPTY),
            samples_MD=samples_MD,
        )

    def once(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return masks with every pair once, for a term that is symmetric: those of a batch have each pair twice."""
        if self.samples_MD is None:
            return self.same_AM.triu(1), self.different_AM.triu(1)
        return self.same_AM, self.different_AM

    def positives_once(self) -> PositivePairs:
        """Return every positive pair once."""
        return positive_pairs(self.once()[0], None if self.most is None else self.most // 2)

    def of_samples(self, sample_P: torch.Tensor) -> torch.Tensor:
        """Return the similarities [P, M] of some of the samples to all of them."""
        if self.samples_MD is None:
            return self.similarities_AM.index_select(0, sample_P)
        return self.samples_MD[sample_P] @ self.samples_MD.T


class Memory(nn.Module):
    """The newest ``size`` embeddings as unit vectors with their labels, newest batch first.

    It is empty until ``active`` is set. Its buffers are not in ``state_dict``, so that they are in a training's state
    to resume from and not in its models.
    """

    def __init__(self, size: int, embedding_dim: int) -> None:
        super().__init__()
        self.active = False
        self.embeddings_MD: torch.Tensor
        self.labels_M: torch.Tensor
        self.register_buffer("embeddings_MD", torch.zeros(size, embedding_dim), persistent=False)
        self.register_buffer("labels_M", torch.full((size,), EMPTY), persistent=False)

    def exchange(self, unit_BD: torch.Tensor, labels_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Replace the oldest embeddings by those of a batch, and return copies of all [M, D] and their labels [M].

        They are copies because the gradient of the batch needs them unchanged.
        """
        size = len(self.labels_M)
        embeddings_MD = torch.cat((unit_BD.detach(), self.embeddings_MD))[:size]
        labels_M = torch.cat((labels_B, self.labels_M))[:size]
        self.embeddings_MD.copy_(embeddings_MD)
        self.labels_M.copy_(labels_M)
        return embeddings_MD, labels_M


class PairLoss(Loss):
    """Loss of the similarities between anchors and samples, of one batch or of a batch and earlier ones.

    A user-defined loss of pairs derives from it, and computes ``over`` instead of ``compute``.
    """

    of_pairs = True
    memory: Memory | None

    def __init__(self) -> None:
        super().__init__()
        self.memory = None

    @abstractmethod
    def over(self, pairs: Pairs) -> torch.Tensor:
        """Return the loss of the anchors, each compared with its positives and negatives among the samples."""

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        unit_BD = unit(embeddings_BD)
        loss = self.over(Pairs.in_batch(unit_BD, labels_B, self.most_pairs))
        if self.memory is None or not self.memory.active:
            return loss
        of_batch = self.used
        loss = loss + self.over(Pairs.with_memory(unit_BD, labels_B, *self.memory.exchange(unit_BD, labels_B)))
        if of_batch is not None and self.used is not None:
            self.used = Used(of_batch.unit, of_batch.count + self.used.count)
        return loss
