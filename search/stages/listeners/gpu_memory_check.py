"""Several workers on one GPU: whether its memory holds as many as ``gpus_per_trial`` packs, by what they took."""

import logging

from optuna.trial import FrozenTrial

from search.cluster.capacity import too_tight
from search.config.sections.resources import ResourcesSection
from search.study.trial_queue import RunningTrial, TrialListener
from trainables.training.epoch_record import EpochRecord

logger = logging.getLogger(__name__)


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
