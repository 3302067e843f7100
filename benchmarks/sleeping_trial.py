"""A trial that only sleeps and reports like a training, to measure the overhead of the search itself."""

import os
import time
from typing import Any

from ray import tune

from benchmarks.slots import SECONDS

WAIT_S = 0.2


class SleepingTrial(tune.Trainable):
    """A trial that sleeps through the epochs of the one spec in ``config["specs"]``, without heavy imports."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take the assignment."""
        self._seconds = float(os.environ[SECONDS])
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next one."""
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._spec = next(iter(config["specs"]), None)
        self._epoch = 0

    def step(self) -> dict[str, Any]:
        """Sleep for one epoch."""
        if self._spec is None:
            time.sleep(WAIT_S)
            return {"news": []}
        self._epoch += 1
        start = time.time()
        time.sleep(self._seconds)
        value = (self._spec.seed % 1000) / 1000 * (1 - 2.0**-self._epoch)
        record = {
            "epoch": self._epoch, "loss": 1 - value, "batches": 1, "metrics": {"map_at_r": value, "recall_at_1": value},
            "start": start, "end": time.time(), "checkpoint": None,
        }  # fmt: skip
        finished = self._epoch == self._spec.training.epochs
        return {"news": [{"directory": self._spec.directory, "records": [record], "finished": finished}]}


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
