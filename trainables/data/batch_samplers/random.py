"""Batches of shuffled images."""

from collections.abc import Iterator

import torch

from trainables.data.batch_samplers.base import Sampler
from trainables.data.batch_samplers.rules import random_problems


class RandomSampler(Sampler):
    """Shuffled images, each at most once an epoch; ``images_per_class`` plays no part."""

    problems = staticmethod(random_problems)

    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        order_N = torch.randperm(sum(self.sizes), generator=self.generator(epoch))
        yield from order_N[: len(self) * self.batch_size].split(self.batch_size)
