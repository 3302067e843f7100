"""Batch samplers. Batches depend on the seed and the epoch alone."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import torch

from trainables.data.batch_samplers import balanced_problems, random_problems, too_small_problems, up_to_problems
from trainables.mistakes import raise_if_any

# What every batch sampler is.
#
# An epoch is ⌊N / batch_size⌋ batches (one at least): about every image once. Samplers that draw classes deal
# them in rounds: within an epoch every class comes once before any comes again, and so do a class's images.
#
# Shapes: N images of the training set, B images of a batch.


class BatchSampler(ABC):
    """Batches of image numbers, a pure function of (seed, epoch), so that a resumed training sees the same.

    ``labels_N`` are the images' classes, in any order and with any numbers. ``members`` are the image numbers of each
    class, and ``sizes`` how many there are.
    """

    def __init__(self, labels_N: torch.Tensor, *, batch_size: int, images_per_class: int, seed: int) -> None:
        _, class_N, sizes = labels_N.unique(return_inverse=True, return_counts=True)
        self.sizes: list[int] = sizes.tolist()
        raise_if_any(self.problems(self.sizes, batch_size, images_per_class))
        self.members = [members.tolist() for members in class_N.argsort(stable=True).split(self.sizes)]
        self.batch_size, self.images_per_class, self.seed = batch_size, images_per_class, seed

    @staticmethod
    def problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        """What forbids these batches, as sentences; the sizes of the classes are all that must be known."""
        return too_small_problems(batch_size, images_per_class)

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        """The epoch's batches, each B image numbers (int64)."""

    def __len__(self) -> int:
        """Batches an epoch."""
        return max(sum(self.sizes) // self.batch_size, 1)

    def generator(self, epoch: int) -> torch.Generator:
        """The epoch's random numbers."""
        # The factor keeps the epochs of one seed apart from those of the next.
        return torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)


# Cards dealt in shuffled rounds: how samplers that draw classes draw them, and a class's images.


class Deck:
    """Cards dealt in shuffled rounds: all before any again, none twice in one hand."""

    def __init__(self, cards: Sequence[int], generator: torch.Generator) -> None:
        self._cards, self._generator = cards, generator
        self._waiting: list[int] = []

    def _shuffled(self) -> list[int]:
        return [self._cards[i] for i in torch.randperm(len(self._cards), generator=self._generator).tolist()]

    def hand(self, room: int, weights: Mapping[int, int] | None = None) -> dict[int, int]:
        """The next cards, and how much of each, that fill ``room``; without ``weights`` a card weighs 1.

        A card that does not fit, or that the hand already has, waits for the next hand. Where what is left of a round
        has none that fits, the first one of it that waits gives a part of its weight: a new round does not begin
        before every card of the old one was dealt.
        """
        waiting = self._waiting
        if weights is None and room <= len(waiting):  # most hands by far, and nobody has to look at each card
            self._waiting = waiting[room:]
            return dict.fromkeys(waiting[:room], 1)
        hand: dict[int, int] = {}
        for _ in range(2):  # what is left of the round, then a fresh one
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
            waiting = left + self._shuffled()
        return hand


# Batches of as many images of each of their classes.


class BalancedSampler(BatchSampler):
    """``images_per_class`` images of each of batch_size / images_per_class classes.

    A class with fewer images gives some of them more than once, as evenly as can be.
    """

    problems = staticmethod(balanced_problems)

    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        generator = self.generator(epoch)
        classes = Deck(range(len(self.sizes)), generator)
        images = [Deck(members, generator) for members in self.members]
        for _ in range(len(self)):
            batch: list[int] = []
            for label in classes.hand(self.batch_size // self.images_per_class):
                whole, rest = divmod(self.images_per_class, self.sizes[label])
                batch += [*self.members[label] * whole, *images[label].hand(rest)]
            yield torch.tensor(batch)


# Batches of shuffled images.


class RandomSampler(BatchSampler):
    """Shuffled images, each at most once an epoch; ``images_per_class`` plays no part."""

    problems = staticmethod(random_problems)

    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        order_N = torch.randperm(sum(self.sizes), generator=self.generator(epoch))
        yield from order_N[: len(self) * self.batch_size].split(self.batch_size)


# Batches that take small classes whole.


class UpToSampler(BatchSampler):
    """Up to ``images_per_class`` images a class and small classes whole (Lu et al., Sampling Wisely, section 4.4).

    A batch has ``batch_size`` images, as the paper's has 64, which its 11 images of a class do not divide: where no
    class that is left in the round fits, the last one gives as many images as there is room for.
    """

    problems = staticmethod(up_to_problems)

    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        generator = self.generator(epoch)
        shares = {label: min(size, self.images_per_class) for label, size in enumerate(self.sizes)}
        classes = Deck(range(len(self.sizes)), generator)
        images = [Deck(members, generator) for members in self.members]
        for _ in range(len(self)):
            hand = classes.hand(self.batch_size, shares)
            yield torch.tensor([image for label, share in hand.items() for image in images[label].hand(share)])
