"""A worker as a Ray Tune trial: one step trains one epoch of each of its trainings."""

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray import tune

from trainables.spec import TrialSpec

WAIT_S = 0.2


class TrainingTrial(tune.Trainable):
    """Lets an actor's worker (``config["worker"]``) train ``config["specs"]``.

    A step's result is ``{"news": […]}``: a list, which Tune does not flatten. Without trainings a step waits for
    :data:`WAIT_S`, which keeps the actor and its imports alive. Only an actor that dies reports nothing.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Make the worker and give it its trainings; whatever can fail is done in the first step."""
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        self._worker = config["worker"](cpus=cpus, gpus=len(ray.get_gpu_ids()))  # the process sees no other GPUs
        self.assign((), config["specs"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Replace all trainings; the actor is reused."""
        self.assign(self._worker.directories, new_config["specs"])
        return True

    def assign(self, ended: Sequence[str], begun: Sequence[TrialSpec]) -> None:
        """Drop the trainings in the directories ``ended``; train ``begun`` from the next step on."""
        self._worker.assign(ended, begun)

    def step(self) -> dict[str, Any]:
        """Train an epoch of each."""
        if not self._worker.directories:
            time.sleep(WAIT_S)
            return {"news": []}
        return {"news": self._worker.step()}

    def cleanup(self) -> None:
        """Free the device."""
        self._worker.end()
