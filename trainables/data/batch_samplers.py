"""Batch samplers: the base class, the built-in ones, their table, and which batches each can fill.

The rules need only the sizes of the classes, so a batch size is checked without importing torch.

Shapes: N images of the training set, B images of a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trainables.common.errors import raise_if_any
from trainables.common.part_tables import PartRow, PartTable

if TYPE_CHECKING:
    import torch


class BatchSampler(ABC):
    """Batches of image indices, a pure function of (seed, epoch), so that a resumed training sees the same batches.

    An epoch has max(1, ⌊N / batch_size⌋) batches: each image about once. Samplers that draw classes deal them in
    rounds: within an epoch every class appears once before any appears again, and so do the images of a class.

    ``labels_N`` are the images' classes, in any order and with arbitrary numbers. ``members`` lists the image indices
    of each class, and ``sizes`` their counts.
    """

    def __init__(self, labels_N: "torch.Tensor", *, batch_size: int, images_per_class: int, seed: int) -> None:
        _, class_N, sizes = labels_N.unique(return_inverse=True, return_counts=True)
        self.sizes: list[int] = sizes.tolist()
        raise_if_any(self.problems(self.sizes, batch_size, images_per_class))
        self.members = [members.tolist() for members in class_N.argsort(stable=True).split(self.sizes)]
        self.batch_size, self.images_per_class, self.seed = batch_size, images_per_class, seed

    @staticmethod
    def problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        """Return sentences on why these batches cannot be filled from classes of these sizes."""
        if images_per_class < 1:
            return [f"images_per_class must be at least 1, not {images_per_class}: give a larger one."]
        if batch_size < max(images_per_class, 2):
            bound = f"batch_size must be at least 2 and images_per_class ({images_per_class})"
            return [f"{bound}, not {batch_size}: give a larger one."]
        return []

    @abstractmethod
    def batches(self, epoch: int) -> "Iterator[torch.Tensor]":
        """Yield the epoch's batches, each B image indices (int64)."""

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return max(sum(self.sizes) // self.batch_size, 1)

    def generator(self, epoch: int) -> "torch.Generator":
        """Return the epoch's random generator."""
        import torch

        # The factor separates the epochs of one seed from those of the next.
        return torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)


def _too_large(batch_size: int, capacity: int, has: str) -> list[str]:
    what = f"A batch of {batch_size} cannot be filled: {has} {capacity} items"
    return [f"{what}. Give a batch_size of at most {capacity}."] if batch_size > capacity else []


class RandomSampler(BatchSampler):
    """Shuffled images, each at most once an epoch; ``images_per_class`` is ignored."""

    @staticmethod
    def problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        too_small = BatchSampler.problems(class_sizes, batch_size, 1)
        return too_small or _too_large(batch_size, sum(class_sizes), "the training has")

    def batches(self, epoch: int) -> "Iterator[torch.Tensor]":
        import torch

        order_N = torch.randperm(sum(self.sizes), generator=self.generator(epoch))
        yield from order_N[: len(self) * self.batch_size].split(self.batch_size)


class BalancedSampler(BatchSampler):
    """``images_per_class`` images of each of batch_size / images_per_class classes.

    The images of a smaller class are repeated as evenly as possible.
    """

    @staticmethod
    def problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        if too_small := BatchSampler.problems(class_sizes, batch_size, images_per_class):
            return too_small
        classes, rest = divmod(batch_size, images_per_class)
        if rest:
            rule = f"A balanced batch_size must be a multiple of images_per_class ({images_per_class})"
            return [f"{rule}; it is {batch_size}: give {batch_size - rest}."]
        if classes > len(class_sizes):
            return [
                f"A balanced batch of {batch_size} with {images_per_class} images a class needs {classes}"
                f" classes, and the training has {len(class_sizes)}: give a batch_size of at most"
                f" {len(class_sizes) * images_per_class} or more images_per_class."
            ]
        return []

    def batches(self, epoch: int) -> "Iterator[torch.Tensor]":
        import torch

        generator = self.generator(epoch)
        classes = _Deck(range(len(self.sizes)), generator)
        images = [_Deck(members, generator) for members in self.members]
        for _ in range(len(self)):
            batch: list[int] = []
            for label in classes.hand(self.batch_size // self.images_per_class):
                whole, rest = divmod(self.images_per_class, self.sizes[label])
                batch += [*self.members[label] * whole, *images[label].hand(rest)]
            yield torch.tensor(batch)


class UpToSampler(BatchSampler):
    """Up to ``images_per_class`` images a class and small classes whole (Lu et al., Sampling Wisely, section 4.4).

    Every batch has exactly ``batch_size`` images, also if that is not a multiple of ``images_per_class`` (64 and 11 in
    the paper): if no class left in the round fits, the last one contributes as many images as are missing.
    """

    @staticmethod
    def problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        capacity = sum(min(size, images_per_class) for size in class_sizes)
        too_small = BatchSampler.problems(class_sizes, batch_size, images_per_class)
        return too_small or _too_large(batch_size, capacity, f"up to {images_per_class} a class, the training has")

    def batches(self, epoch: int) -> "Iterator[torch.Tensor]":
        import torch

        generator = self.generator(epoch)
        shares = {label: min(size, self.images_per_class) for label, size in enumerate(self.sizes)}
        classes = _Deck(range(len(self.sizes)), generator)
        images = [_Deck(members, generator) for members in self.members]
        for _ in range(len(self)):
            hand = classes.hand(self.batch_size, shares)
            yield torch.tensor([image for label, share in hand.items() for image in images[label].hand(share)])


class _Deck:
    """Cards (classes, or images of a class) dealt in shuffled rounds: each card once a round and once a hand."""

    def __init__(self, cards: Sequence[int], generator: "torch.Generator") -> None:
        self._cards, self._generator = cards, generator
        self._waiting: list[int] = []

    def hand(self, room: int, weights: Mapping[int, int] | None = None) -> dict[int, int]:
        """Deal the next cards until their weights sum to ``room``; return each card's weight (1 without ``weights``).

        A card that does not fit, or that is already in the hand, waits for the next hand. If none of the round's
        remaining cards fits, the first is dealt with part of its weight: a round is finished before the next begins.
        """
        import torch

        waiting = self._waiting
        if weights is None and room <= len(waiting):  # fast path for most hands
            self._waiting = waiting[room:]
            return dict.fromkeys(waiting[:room], 1)
        hand: dict[int, int] = {}
        for _ in range(2):  # the rest of the round, then a fresh one
            left: list[int] = []
            for position, card in enumerate(waiting):
                if room == 0:
                    left += waiting[position:]
                    break
                weight = weights[card] if weights else 1
                if weight <= room and card not in hand:
                    hand[card] = weight
                    room -= weight
                else:
                    left.append(card)
            too_large = next((card for card in left if card not in hand), None)
            if room and too_large is not None:
                left.remove(too_large)
                hand[too_large], room = room, 0
            self._waiting = left
            if room == 0:
                break
            order = torch.randperm(len(self._cards), generator=self._generator).tolist()
            waiting = left + [self._cards[place] for place in order]
        return hand


BATCH_SAMPLERS: PartTable[type[BatchSampler], PartRow] = PartTable(
    "batch sampler",
    {
        "random": PartRow(path=f"{__name__}:RandomSampler"),
        "balanced": PartRow(path=f"{__name__}:BalancedSampler"),
        "up_to": PartRow(path=f"{__name__}:UpToSampler"),
    },
    base=f"{__name__}:BatchSampler",
)


def lacks(sampler: str, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> str:
    """Return what batches of a built-in sampler lack: two images of a class, or of two classes; else an empty text."""
    most = max(class_sizes) if sampler == "random" else images_per_class
    if sampler in BATCH_SAMPLERS and most == 1:
        return "two images of a class"
    one_class = {"balanced": images_per_class, "up_to": min(images_per_class, *class_sizes)}.get(sampler, 0)
    return "images of two classes" if len(class_sizes) == 1 or one_class == batch_size else ""


def fitting_batch(sampler: str, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> int | None:
    """Return the largest batch of at most ``batch_size`` that ``sampler`` can fill; None if it can fill none."""
    sizes = range(batch_size, 0, -1)
    return next((size for size in sizes if not batch_problems(sampler, class_sizes, size, images_per_class)), None)


def batch_problems(sampler: str, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
    """Return sentences on why ``sampler``, a name or an import path, cannot fill these batches."""
    return BATCH_SAMPLERS[sampler].problems(class_sizes, batch_size, images_per_class)
