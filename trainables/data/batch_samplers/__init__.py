"""Which images go into a batch together, by name. A sampler's batches depend on its seed and the epoch alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.data.batch_samplers.rules import Rule, balanced_problems, random_problems, up_to_problems
from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from trainables.data.batch_samplers.base import Sampler


@dataclass(frozen=True, kw_only=True)
class BatchSamplerRow(PartRow):
    """A batch sampler's class, and the rule that says which batches it can fill."""

    summary: str
    problems: Rule


_ROWS = {
    "random": BatchSamplerRow(
        path="trainables.data.batch_samplers.random:RandomSampler",
        summary="shuffled images",
        problems=random_problems,
    ),
    "balanced": BatchSamplerRow(
        path="trainables.data.batch_samplers.balanced:BalancedSampler",
        summary="images_per_class of each class, classes without replacement",
        problems=balanced_problems,
    ),
    "up_to": BatchSamplerRow(
        path="trainables.data.batch_samplers.up_to:UpToSampler",
        summary="up to images_per_class of each class, small classes whole; the last class fills the batch",
        problems=up_to_problems,
    ),
}

BATCH_SAMPLERS: "PartTable[type[Sampler], BatchSamplerRow]" = PartTable(
    "batch sampler", _ROWS, base="trainables.data.batch_samplers.base:Sampler"
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
