"""A training as a Ray Tune trial: one step is one epoch, and an actor trains one trial after another.

torch is imported by the actors alone: the driver, which imports this module too, saves two seconds and 800 MB.
"""

import gc
import logging
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray import tune

from trainables.files.disk_full import DiskFull, is_full
from trainables.files.whole import as_path
from trainables.spec import TrialSpec
from trainables.training.distributed.messages import RankLost
from trainables.training.trial_log import TrialLog

if TYPE_CHECKING:
    import torch

    from trainables.training.cross_validation import CrossValidation
    from trainables.training.train import Training

logger = logging.getLogger(__name__)

WAIT_S = 0.2


def _described(*devices: "torch.device") -> str:
    import torch

    if devices[0].type != "cuda":
        return f"{torch.get_num_threads()} CPU threads"
    return ", ".join(map(torch.cuda.get_device_name, devices))


def _where_full(error: Exception, spec: TrialSpec) -> str:
    """The sentence on a full disk, which may be that of another machine than the driver's."""
    full = error if isinstance(error, DiskFull) else DiskFull.at(as_path(spec.directory))
    return f"On {socket.gethostname()}: {full}"


class TrainingTrial(tune.Trainable):
    """Trains ``config["spec"]``; without one (None) it waits, a moment a step, and keeps its actor alive.

    A step's result is ``{"news": [news]}`` (in a list, which Tune does not flatten). The news are either
    ``{"records": […], "finished": bool}``, the epochs that were not yet reported, or
    ``{"failure": {"cause": …, "reason": …}}``. Failures are results and not exceptions: the actor lives on, and the
    study learns the name of the failure. ``{"disk_full": sentence}`` is no failure of the training, which goes on when
    there is room. Only an actor that dies reports nothing, or one whose trial has several GPUs and lost the process of
    one of them. Each attempt keeps a log of its own in the trial's directory.
    """

    _further_devices: "Sequence[torch.device]" = ()

    def setup(self, config: dict[str, Any]) -> None:
        """Take the assignment; whatever can fail is done in the first step."""
        import torch

        context = ray.get_runtime_context()
        torch.set_num_threads(max(1, int(context.get_assigned_resources().get("CPU", 1))))
        gpus = len(ray.get_gpu_ids())  # this process sees no others
        self._device = torch.device("cuda" if gpus else "cpu")
        if gpus > 1:
            self._device, *self._further_devices = (torch.device("cuda", number) for number in range(gpus))
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next assignment; nothing of the last one stays."""
        self._free()
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._spec: TrialSpec | None = config["spec"]
        self._training: Training | CrossValidation | None = None
        self._log: TrialLog | None = None
        self._reported = 0

    def step(self) -> dict[str, Any]:
        """Train one epoch; a training that goes on from a checkpoint first reports the epochs that it has."""
        if self._spec is None:
            time.sleep(WAIT_S)
            return {"news": [{}]}
        if self._log is None:  # before anything that may fail
            self._log = TrialLog(self._spec, _described(self._device, *self._further_devices))
            self._log.open()
        try:
            return {"news": [self._epoch(self._spec, self._log)]}
        except Exception as error:
            from trainables.training.train import failure_of

            self._log.failure(error)
            self._log.close()
            if isinstance(error, RankLost):  # as if this process had died: the trial is tried again elsewhere
                raise
            if is_full(error):
                news: dict[str, Any] = {"disk_full": _where_full(error, self._spec)}
            else:
                logger.exception("The training failed.")  # in the worker's own output too
                news = {"failure": failure_of(error)}
        self._free()
        return {"news": [news]}

    def _epoch(self, spec: TrialSpec, log: TrialLog) -> dict[str, Any]:
        from trainables.training.cross_validation import begin

        if self._training is None:
            self._training = begin(spec, self._device, *self._further_devices)
        if self._reported == len(self._training.records):
            log.epoch(self._training.run_epoch())
        unreported = self._training.records[self._reported :]
        self._reported = len(self._training.records)
        if self._training.finished:
            log.done()
        return {"records": unreported, "finished": self._training.finished}

    def _free(self) -> None:
        if self._training is not None:
            try:
                self._training.wait_for_checkpoints()
            except Exception as error:  # the driver has ended the trial, and needs no checkpoint of it
                logger.warning("The last checkpoint could not be written (%s: %s).", type(error).__name__, error)
        if self._log is not None:
            self._log.close()
        self._training = self._log = None
        gc.collect()  # modules refer to themselves through hooks; their memory is needed now
        if self._device.type == "cuda":
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def cleanup(self) -> None:
        """Leave nothing on the device."""
        self._free()
