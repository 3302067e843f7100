"""Trials that only sleep and report as trainings do: the remaining time is the cost of the search itself."""

import os
import time
from typing import Any

from ray import tune

from benchmarks.slots import SECONDS
from trainables.training.spec import Epochs


class SleepingWorker:
    """Sleeps through the epochs of one trial at a time; nothing heavy is imported in its process."""

    def __init__(self, *, cpus: float, gpu: bool) -> None:
        self._seconds = float(os.environ[SECONDS])
        self._spec: Any = None
        self._epoch = 0

    def assign(self, spec: Any) -> None:
        """Take the next trial."""
        self._spec, self._epoch = spec, 0

    def step(self) -> Epochs:
        """Sleep for one epoch and report it."""
        self._epoch += 1
        start = time.time()
        time.sleep(self._seconds)
        value = (self._spec.seed % 1000) / 1000 * (1 - 2.0**-self._epoch)
        record = {
            "epoch": self._epoch, "loss": 1 - value, "batches": 1, "metrics": {"map_at_r": value, "recall_at_1": value},
            "start": start, "end": time.time(), "checkpoint": None,
        }  # fmt: skip
        finished = self._epoch == self._spec.training.epochs
        return Epochs([record], finished=finished)

    def end(self) -> None:
        """Drop the trial."""
        self._spec = None


class PlainSleeping(tune.Trainable):
    """The same trial for Ray Tune alone."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take the configuration."""
        self._seconds = float(os.environ[SECONDS])
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next one."""
        self._value = new_config["x"]
        self._epoch = 0
        return True

    def step(self) -> dict[str, Any]:
        """Sleep for one epoch."""
        self._epoch += 1
        start = time.time()
        time.sleep(self._seconds)
        return {"value": self._value * (1 - 2.0**-self._epoch), "start": start, "end": time.time()}
