"""Batch samplers by name, and the rules that say which batches each can fill.

The samplers themselves are in :mod:`trainables.data.samplers`. The rules need only the sizes of the classes, so a
batch size is checked without importing torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from trainables.data.samplers import BatchSampler

Rule = Callable[[Sequence[int], int, int], list[str]]
"""Takes the class sizes, the batch size and ``images_per_class``; returns the problems as sentences."""


def random_problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
    """Check that there are enough images: each is in one batch at most."""
    if too_small := too_small_problems(batch_size, images_per_class=1):
        return too_small
    return _too_large(batch_size, sum(class_sizes), "the training has")


def balanced_problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
    """Check that the batch is a whole number of classes and that there are enough of them."""
    if too_small := too_small_problems(batch_size, images_per_class):
        return too_small
    if batch_size % images_per_class:
        return [
            f"A balanced batch_size must be a multiple of images_per_class ({images_per_class}); it is {batch_size}:"
            f" give {batch_size - batch_size % images_per_class or images_per_class}."
        ]
    classes = batch_size // images_per_class
    if classes > len(class_sizes):
        return [
            f"A balanced batch of {batch_size} with {images_per_class} images a class needs {classes}"
            f" classes, and the training has {len(class_sizes)}: give a batch_size of at most"
            f" {len(class_sizes) * images_per_class} or more images_per_class."
        ]
    return []


def up_to_problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
    """Check that there are enough images, of which a class contributes at most ``images_per_class``."""
    if too_small := too_small_problems(batch_size, images_per_class):
        return too_small
    capacity = sum(min(size, images_per_class) for size in class_sizes)
    return _too_large(batch_size, capacity, f"up to {images_per_class} a class, the training has")


def too_small_problems(batch_size: int, images_per_class: int) -> list[str]:
    """Check that a batch holds at least two images and at least one class's images."""
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
        f"A batch of {batch_size} cannot be filled: {has} {capacity} items. Give a batch_size of at most {capacity}."
    ]


@dataclass(frozen=True, kw_only=True)
class BatchSamplerRow(PartRow):
    """A batch sampler, with the rule that says which batches it can fill."""

    problems: Rule


_ROWS = {
    "random": BatchSamplerRow(path="trainables.data.samplers:RandomSampler", problems=random_problems),
    "balanced": BatchSamplerRow(path="trainables.data.samplers:BalancedSampler", problems=balanced_problems),
    "up_to": BatchSamplerRow(path="trainables.data.samplers:UpToSampler", problems=up_to_problems),
}

BATCH_SAMPLERS: "PartTable[type[BatchSampler], BatchSamplerRow]" = PartTable(
    "batch sampler", _ROWS, base="trainables.data.samplers:BatchSampler"
)


def lacks(sampler: str, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> str:
    """Return what no batch of a built-in sampler holds, of two images of a class and two classes; empty if it has both.

    A loss that compares the images of a batch needs both.
    """
    most = max(class_sizes) if sampler == "random" else images_per_class
    if sampler in _ROWS and most == 1:
        return "two images of a class"
    one_class = {"balanced": images_per_class, "up_to": min(images_per_class, *class_sizes)}.get(sampler, 0)
    return "images of two classes" if len(class_sizes) == 1 or one_class == batch_size else ""


def fitting_batch(sampler: str, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> int | None:
    """Return the largest batch of at most ``batch_size`` that ``sampler`` can fill; None if it can fill none."""
    sizes = range(batch_size, 0, -1)
    return next((size for size in sizes if not batch_problems(sampler, class_sizes, size, images_per_class)), None)


def batch_problems(sampler: str, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
    """Return sentences on why ``sampler`` cannot fill these batches. Imports user-defined samplers only."""
    row = BATCH_SAMPLERS.rows.get(sampler)
    rule = row.problems if row else BATCH_SAMPLERS[sampler].problems
    return rule(class_sizes, batch_size, images_per_class)
