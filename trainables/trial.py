"""Trainings as a Ray Tune trial: one step is one epoch of each, and an actor trains one trial after another.

torch is imported by the actors alone: the driver, which imports this module too, saves two seconds and 800 MB.
"""

import gc
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray import tune

from trainables.spec import TrialSpec
from trainables.training.attempt import Attempt, train_together

WAIT_S = 0.2


class TrainingTrial(tune.Trainable):
    """Trains ``config["specs"]`` together; without one it waits, a moment a step, and keeps its actor alive.

    A step's result is ``{"news": […]}`` (a list, which Tune does not flatten), the :class:`Attempt`'s news for each.
    Failures are results and not exceptions: the actor lives on, and the study learns the name of the failure. Only an
    actor that dies reports nothing, or one whose trial has several GPUs and lost the process of one of them.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Take the assignment; whatever can fail is done in the first step."""
        import torch

        context = ray.get_runtime_context()
        torch.set_num_threads(max(1, int(context.get_assigned_resources().get("CPU", 1))))
        gpus = len(ray.get_gpu_ids())  # this process sees no others
        self._devices = [torch.device("cuda", number) for number in range(gpus)] or [torch.device("cpu")]
        self._attempts: dict[str, Attempt] = {}
        self.assign((), config["specs"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next assignment; nothing of the last one stays."""
        self.assign(tuple(self._attempts), new_config["specs"])
        return True

    def assign(self, ended: Sequence[str], begun: Sequence[TrialSpec]) -> None:
        """Give up the attempts in the directories ``ended``, and train ``begun`` from the next step on."""
        for directory in ended:
            if attempt := self._attempts.pop(directory, None):
                attempt.end()
        if ended:
            self._free()
        self._attempts |= {spec.directory: Attempt(spec, self._devices) for spec in begun}

    def step(self) -> dict[str, Any]:
        """Train an epoch of each; a training that goes on from a checkpoint first reports the epochs that it has."""
        if not self._attempts:
            time.sleep(WAIT_S)
            return {"news": []}
        news = train_together(tuple(self._attempts.values()))
        if failed := [entry["directory"] for entry in news if "records" not in entry]:
            self.assign(failed, ())
        return {"news": news}

    def _free(self) -> None:
        gc.collect()  # modules refer to themselves through hooks; their memory is needed now
        if self._devices[0].type == "cuda":
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def cleanup(self) -> None:
        """Leave nothing on the device."""
        self.assign(tuple(self._attempts), ())
