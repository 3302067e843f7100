"""Which images go into a batch together. A sampler's batches depend on its seed and the epoch alone.

An epoch is ⌊N / batch_size⌋ batches (one at least): about every image once. Samplers that draw classes deal
them in rounds: within an epoch every class comes once before any comes again, and so do a class's images.

Shapes: N images of the training set, B images of a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import torch

from trainables.mistakes import raise_if_any


class Deck:
    """Cards dealt in shuffled rounds: all before any again, none twice in one hand."""

    def __init__(self, cards: Sequence[int], generator: torch.Generator) -> None:
        self._cards, self._generator = cards, generator
        self._waiting: list[int] = []

    def _shuffled(self) -> list[int]:
        return [self._cards[i] for i in torch.randperm(len(self._cards), generator=self._generator).tolist()]

    def hand(self, room: int, weights: Mapping[int, int] | None = None) -> list[int]:
        """The next cards that fit into ``room`` together (a card weighs 1 unless told), first what waits.

        A card that does not fit, or that the hand already has, waits for the next hand.
        """
        hand: dict[int, None] = {}
        waiting = self._waiting
        for _ in range(2):  # what was left over, then a fresh round: now every card has had its chance
            left: list[int] = []
            for position, card in enumerate(waiting):
                if room == 0:
                    left += waiting[position:]
                    break
                weight = weights[card] if weights else 1
                if weight <= room and card not in hand:
                    hand[card] = None
                    room -= weight
                else:
                    left.append(card)
            self._waiting = left
            if room == 0:
                break
            waiting = left + self._shuffled()
        return list(hand)


class Sampler(ABC):
    """Batches of image numbers, a pure function of (seed, epoch), so that a resumed training sees the same.

    ``labels_N`` are the images' classes, in any order and with any numbers.
    """

    rule: ClassVar[str]

    def __init__(self, labels_N: torch.Tensor, *, batch_size: int, images_per_class: int, seed: int) -> None:
        _, class_N, sizes = labels_N.unique(return_inverse=True, return_counts=True)
        self._sizes: list[int] = sizes.tolist()
        raise_if_any(self.problems(self._sizes, batch_size, images_per_class))
        self._members = [members.tolist() for members in class_N.argsort(stable=True).split(self._sizes)]
        self.batch_size, self.images_per_class, self.seed = batch_size, images_per_class, seed

    @classmethod
    @abstractmethod
    def problems(cls, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        """What forbids these batches, as sentences; the sizes of the classes are all that must be known."""

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        """The epoch's batches, each B image numbers (int64)."""

    def __len__(self) -> int:
        """Batches an epoch."""
        return max(sum(self._sizes) // self.batch_size, 1)

    def _generator(self, epoch: int) -> torch.Generator:
        # The factor keeps the epochs of one seed apart from those of the next.
        return torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)


class RandomSampler(Sampler):
    """Shuffled images, each at most once an epoch; ``images_per_class`` plays no part."""

    rule = "shuffled images"

    @classmethod
    def problems(cls, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        if too_small := _too_small(batch_size, images_per_class=1):
            return too_small
        return _too_large(batch_size, sum(class_sizes), "the training has")

    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        order_N = torch.randperm(sum(self._sizes), generator=self._generator(epoch))
        yield from order_N[: len(self) * self.batch_size].split(self.batch_size)


class BalancedSampler(Sampler):
    """``images_per_class`` images of each of batch_size / images_per_class classes.

    A class with fewer images gives some of them more than once, as evenly as can be.
    """

    rule = "images_per_class of each class, classes without replacement"

    @classmethod
    def problems(cls, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        if too_small := _too_small(batch_size, images_per_class):
            return too_small
        if batch_size % images_per_class:
            return [
                f"A balanced batch_size must be a multiple of images_per_class, and {batch_size} is none of"
                f" {images_per_class}: give {batch_size - batch_size % images_per_class or images_per_class}."
            ]
        classes = batch_size // images_per_class
        if classes > len(class_sizes):
            return [
                f"A balanced batch of {batch_size} with {images_per_class} images a class needs {classes}"
                f" classes, and the training has {len(class_sizes)}: give a batch_size of at most"
                f" {len(class_sizes) * images_per_class} or more images_per_class."
            ]
        return []

    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        generator = self._generator(epoch)
        classes = Deck(range(len(self._sizes)), generator)
        images = [Deck(members, generator) for members in self._members]
        for _ in range(len(self)):
            batch: list[int] = []
            for label in classes.hand(self.batch_size // self.images_per_class):
                whole, rest = divmod(self.images_per_class, self._sizes[label])
                batch += self._members[label] * whole + (images[label].hand(rest) if rest else [])
            yield torch.tensor(batch)


class UpToSampler(Sampler):
    """Up to ``images_per_class`` images a class and small classes whole (Lu et al., Sampling Wisely).

    No class is cut to make a batch full: where no other fits, the batch is smaller than ``batch_size``.
    """

    rule = "up to images_per_class of each class, small classes whole"

    @classmethod
    def problems(cls, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        if too_small := _too_small(batch_size, images_per_class):
            return too_small
        capacity = sum(min(size, images_per_class) for size in class_sizes)
        return _too_large(batch_size, capacity, f"up to {images_per_class} a class, the training has")

    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        generator = self._generator(epoch)
        shares = {label: min(size, self.images_per_class) for label, size in enumerate(self._sizes)}
        classes = Deck(range(len(self._sizes)), generator)
        images = [Deck(members, generator) for members in self._members]
        for _ in range(len(self)):
            hand = classes.hand(self.batch_size, shares)
            yield torch.tensor([image for label in hand for image in images[label].hand(shares[label])])


def _too_small(batch_size: int, images_per_class: int) -> list[str]:
    if images_per_class < 1:
        return [f"images_per_class must be at least 1, not {images_per_class}: give a larger one."]
    if batch_size < max(images_per_class, 2):
        return [
            f"batch_size must be at least 2 and images_per_class ({images_per_class}), not {batch_size}:"
            " give a larger one."
        ]
    return []


def _too_large(batch_size: int, capacity: int, has: str) -> list[str]:
    if batch_size <= capacity:
        return []
    return [
        f"A batch of {batch_size} cannot be filled: {has} {capacity} images. Give a batch_size of at most {capacity}."
    ]


BATCH_SAMPLERS: dict[str, type[Sampler]] = {
    "random": RandomSampler,
    "balanced": BalancedSampler,
    "up_to": UpToSampler,
}
