"""What is kept of an epoch."""

from typing import NotRequired, TypedDict


class DeviceMemory(TypedDict):
    """Bytes of a GPU: what PyTorch held at most, and what there is."""

    peak: int
    total: int


class EpochRecord(TypedDict):
    """What one epoch came to. ``start`` and ``end`` are seconds since 1970, ``metrics`` are of the validation.

    ``batches`` is the number of training steps, and ``used`` how many pairs, triplets or samples the loss took of them
    (:class:`trainables.losses.used.Used`); a loss that does not say it has none.

    In a cross-validation ``fold`` (from 1) says whose epoch it is. On a GPU ``memory`` is what the process has taken.
    ``together`` says how many trainings a stack had, this one counted, whose steps were taken at once.
    """

    epoch: int
    loss: float
    batches: int
    metrics: dict[str, float]
    start: float
    end: float
    checkpoint: str | None
    used: NotRequired[dict[str, int]]
    fold: NotRequired[int]
    memory: NotRequired[DeviceMemory]
    together: NotRequired[int]
