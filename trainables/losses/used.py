"""What a loss has taken of a batch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Unit = Literal["pairs", "triplets", "samples"]


@dataclass(frozen=True)
class Used:
    """So many pairs, triplets or samples, each as often as the loss sums it, those whose term is 0 too.

    ``count`` is a number that is known without asking the device, or else a whole 0-dim tensor on it: to read that
    would make a training step wait.
    """

    unit: Unit
    count: "int | Tensor"


def summed(batches: Iterable[Used | None]) -> dict[str, int]:
    """How many of each unit ``batches`` used together; nothing of those that do not say it. It waits for the device."""
    totals: dict[str, int | Tensor] = {}
    for used in batches:
        if used is not None:
            totals[used.unit] = totals.get(used.unit, 0) + used.count
    return {unit: int(total) for unit, total in totals.items()}
