"""Batches of as many images of each of their classes."""

from collections.abc import Iterator

import torch

from trainables.data.batch_samplers.base import Sampler
from trainables.data.batch_samplers.deck import Deck
from trainables.data.batch_samplers.rules import balanced_problems


class BalancedSampler(Sampler):
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
