"""Batches that take small classes whole."""

from collections.abc import Iterator

import torch

from trainables.data.batch_samplers.base import Sampler
from trainables.data.batch_samplers.deck import Deck
from trainables.data.batch_samplers.rules import up_to_problems


class UpToSampler(Sampler):
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
