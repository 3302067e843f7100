"""A worker as a Ray Tune trial: one step trains one epoch."""

import sys
import time
from typing import Any

import ray
from ray import tune

from trainables.common.errors import refer
from trainables.training.spec import TrialSpec

WAIT_S = 0.2


class TrainingTrial(tune.Trainable):
    """Lets an actor's worker (``config["worker"]``) train ``config["spec"]``.

    A step's result is ``{"news": [news]}``: a list, which Tune does not flatten. Without a spec (None) a step waits for
    :data:`WAIT_S`, which keeps the actor and its imports alive. Only an actor that dies reports nothing.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Make the worker and give it its training; whatever can fail is done in the first step."""
        del sys.argv[1:]  # Ray's; a user's code may parse the command line
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        refer(config["secrets"].split())  # the Ray of a user started without
        self._worker = config["worker"](cpus=cpus, gpu=bool(ray.get_gpu_ids()))  # the process sees no other GPU
        self._assign(config["spec"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._worker.end()
        self._assign(new_config["spec"])
        return True

    def _assign(self, spec: TrialSpec | None) -> None:
        self._waits = spec is None
        if spec is not None:
            self._worker.assign(spec)

    def step(self) -> dict[str, Any]:
        if self._waits:
            time.sleep(WAIT_S)
            return {"news": []}
        return {"news": [self._worker.step()]}

    def cleanup(self) -> None:
        self._worker.end()
