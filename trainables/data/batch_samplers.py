"""Batch samplers by name, and which batches each can fill."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from trainables.data.samplers import BatchSampler


# Which batches each sampler can fill, known from the sizes of the classes alone.
#
# A rule takes the class sizes, the batch size and the images a class, and gives sentences: none where it can.

Rule = Callable[[Sequence[int], int, int], list[str]]


def random_problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
    """Every image is in a batch once at most."""
    if too_small := too_small_problems(batch_size, images_per_class=1):
        return too_small
    return _too_large(batch_size, sum(class_sizes), "the training has")


def balanced_problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
    """A batch is made of whole classes, none twice."""
    if too_small := too_small_problems(batch_size, images_per_class):
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


def up_to_problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
    """A class gives as many images as it has, up to ``images_per_class``."""
    if too_small := too_small_problems(batch_size, images_per_class):
        return too_small
    capacity = sum(min(size, images_per_class) for size in class_sizes)
    return _too_large(batch_size, capacity, f"up to {images_per_class} a class, the training has")


def too_small_problems(batch_size: int, images_per_class: int) -> list[str]:
    """A batch holds two images at least, and those of one class."""
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


# Which images go into a batch together, by name. A sampler's batches depend on its seed and the epoch alone.


@dataclass(frozen=True, kw_only=True)
class BatchSamplerRow(PartRow):
    """A batch sampler's class, and the rule that says which batches it can fill."""

    summary: str
    problems: Rule


_ROWS = {
    "random": BatchSamplerRow(
        path="trainables.data.samplers:RandomSampler",
        summary="shuffled images",
        problems=random_problems,
    ),
    "balanced": BatchSamplerRow(
        path="trainables.data.samplers:BalancedSampler",
        summary="images_per_class of each class, classes without replacement",
        problems=balanced_problems,
    ),
    "up_to": BatchSamplerRow(
        path="trainables.data.samplers:UpToSampler",
        summary="up to images_per_class of each class, small classes whole; the last class fills the batch",
        problems=up_to_problems,
    ),
}

BATCH_SAMPLERS: "PartTable[type[BatchSampler], BatchSamplerRow]" = PartTable(
    "batch sampler", _ROWS, base="trainables.data.samplers:BatchSampler"
)


def batch_problems(sampler: str, class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
    """What forbids these batches, as sentences. Only a sampler of one's own is imported for it.

    Raises:
        Mistakes: the import path leads to no batch sampler.
    """
    row = BATCH_SAMPLERS.rows.get(sampler)
    rule = row.problems if row else BATCH_SAMPLERS[sampler].problems
    return rule(class_sizes, batch_size, images_per_class)


__all__ = ["BATCH_SAMPLERS", "BatchSamplerRow", "batch_problems"]
