"""What every batch sampler is.

An epoch is ⌊N / batch_size⌋ batches (one at least): about every image once. Samplers that draw classes deal
them in rounds: within an epoch every class comes once before any comes again, and so do a class's images.

Shapes: N images of the training set, B images of a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch

from trainables.data.batch_samplers.rules import too_small_problems
from trainables.mistakes import raise_if_any


class Sampler(ABC):
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
