"""Several workers on one GPU: whether its memory holds as many as ``gpus_per_trial`` packs, by what they took."""

import logging

from optuna.trial import FrozenTrial

from search.config.sections.resources import ResourcesSection
from search.study.trial_queue import RunningTrial, TrialListener
from trainables.training.epoch_record import DeviceMemory, EpochRecord

logger = logging.getLogger(__name__)

CONTEXT_BYTES = 600_000_000
"""What a process takes of a GPU beside PyTorch's tensors: CUDA itself and its libraries."""


def too_tight(gpus_per_trial: float, memory: DeviceMemory, stack: int = 1) -> str | None:
    """A sentence naming a fraction that fits, where the workers packed on one GPU need more memory than it has.

    A worker trains a trial, or a stack of so many.
    """
    one, many = ("trial", "trials") if stack == 1 else (f"stack of {stack}", f"stacks of {stack}")
    packed = int(1 / gpus_per_trial + 1e-6)
    need = memory["peak"] + CONTEXT_BYTES
    fit = max(1, memory["total"] // need)
    if packed <= fit:
        return None
    fraction = int(1000 / fit) / 1000  # rounded down: rounded up, one fewer would be packed
    return (
        f"resources.gpus_per_trial is {gpus_per_trial:g}, which packs {packed} {many} on a GPU of "
        f"{memory['total'] / 1e9:.1f} GB; a {one} took {need / 1e9:.1f} GB of it, so {fit} fit: set it to {fraction:g}."
    )


class GpuMemoryCheck(TrialListener):
    """Warns, once for each worse case, when workers that share a GPU need more memory than it has."""

    def __init__(self, resources: ResourcesSection) -> None:
        self._gpus_per_trial = resources.gpus_per_trial
        self._stack = resources.stack
        self._most = 0

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        """Look at the memory that the trial has taken so far."""
        memory = record.get("memory")
        if not 0 < self._gpus_per_trial < 1 or memory is None or memory["peak"] <= self._most:
            return
        if sentence := too_tight(self._gpus_per_trial, memory, self._stack):
            self._most = memory["peak"]
            logger.warning("%s", sentence)
