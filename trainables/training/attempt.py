"""The training of one worker process: an attempt at a trial, trained an epoch at a time."""

import gc
import logging
import os
import socket
from typing import TYPE_CHECKING, Any

from trainables.files import as_path
from trainables.process import Setting, contained
from trainables.secrets import traced
from trainables.spec import TrialSpec
from trainables.storage import DiskFull, is_full
from trainables.training.trial_log import TrialLog

if TYPE_CHECKING:
    import torch

    from trainables.training.cross_validation import CrossValidation
    from trainables.training.epoch_training import EpochTraining

logger = logging.getLogger(__name__)


class Worker:
    """A worker process's trainer, which trains one attempt at a time.

    Independent of the engine that runs the process. Importing this module does not import torch, which costs a driver
    2 s and 800 MB. :class:`search.engines.base.Engine` drives it; a replacement needs the same methods.
    """

    def __init__(self, *, cpus: float, gpu: bool) -> None:
        """Set torch's threads to ``cpus`` (at least 1); with ``gpu`` use the first GPU that this process sees."""
        import torch

        if gpu:
            from trainables.models.embedding import CUBLAS_WORKSPACE

            os.environ.setdefault(*CUBLAS_WORKSPACE)  # before the first product, for trainings that are deterministic
        torch.set_num_threads(max(1, int(cpus)))
        self._device = torch.device("cuda", 0) if gpu else torch.device("cpu")
        self._attempt: Attempt | None = None

    def assign(self, spec: TrialSpec) -> None:
        """Drop the current attempt; train ``spec`` from the next step on."""
        self.end()
        self._attempt = Attempt(spec, self._device)

    def step(self) -> dict[str, Any]:
        """Train the next epoch of the attempt and return its news; a resumed attempt first reports what it has.

        A failure is news and not an exception: the process survives, and the study records the cause.
        """
        assert self._attempt is not None, "no attempt was assigned"
        news = self._attempt.step()
        if "records" not in news:
            self.end()
        return news

    def end(self) -> None:
        """Drop the attempt, if there is one, and free the device."""
        if self._attempt is None:
            return
        self._attempt.end()
        self._attempt = None
        gc.collect()  # modules refer to themselves through hooks, and their memory is needed now
        if self._device.type == "cuda":
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


class Attempt:
    """The training of ``spec`` on ``device``, as far as this process has trained it, and its log.

    Its news are one of ``{"records": […], "finished": bool}`` (epochs not yet reported),
    ``{"failure": {"cause": …, "reason": …}}``, and ``{"disk_full": sentence}``. A full disk is not a failure of the
    training, which resumes when there is room.
    """

    def __init__(self, spec: TrialSpec, device: "torch.device") -> None:
        self._spec = spec
        self._device = device
        self._training: EpochTraining | CrossValidation | None = None
        self._log: TrialLog | None = None
        self._reported = 0
        self._settings: list[Setting] = []  # of the process, as this training sees it

    def step(self) -> dict[str, Any]:
        """Train the next epoch and return the news; a resumed training first reports the epochs that it has."""
        if self._log is None:  # before anything that may fail
            self._log = TrialLog(self._spec, _described(self._device))
            self._log.open()
        try:
            with contained(self._settings):
                return self._trained(self._log)
        except Exception as error:
            return self._failed(error, self._log)

    def _trained(self, log: TrialLog) -> dict[str, Any]:
        from trainables.training.cross_validation import begin

        if self._training is None:
            self._training = begin(self._spec, self._device)
        if self._reported == len(self._training.records):
            log.epoch(self._training.run_epoch())
        unreported = self._training.records[self._reported :]
        self._reported = len(self._training.records)
        if self._training.finished:
            log.done()
        return {"records": unreported, "finished": self._training.finished}

    def _failed(self, error: Exception, log: TrialLog) -> dict[str, Any]:
        from trainables.training.train import failure_of

        log.failure(error)
        log.close()
        if is_full(error):
            return {"disk_full": _where_full(error, self._spec)}
        logger.error("The training failed.\n%s", traced(error))  # in the worker's own output too
        return {"failure": failure_of(error)}

    def end(self) -> None:
        """Wait for pending writes, and release the training."""
        if self._training is not None:
            try:
                self._training.wait_for_checkpoints()
            except Exception as error:  # not an error: the driver has ended the trial
                logger.warning("The last checkpoint could not be written (%s: %s).", type(error).__name__, error)
            with contained(self._settings):
                self._training.end()
        if self._log is not None:
            self._log.close()
        self._training = self._log = None


def _described(device: "torch.device") -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"


def _where_full(error: Exception, spec: TrialSpec) -> str:
    """Return a sentence on the full disk, with the name of this machine."""
    full = error if isinstance(error, DiskFull) else DiskFull.at(as_path(spec.directory))
    return f"On {socket.gethostname()}: {full}"
