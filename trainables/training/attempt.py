"""The trainings of one worker process: attempts at trials, trained an epoch at a time."""

import gc
import logging
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from trainables.files import as_path
from trainables.spec import EpochRecord, TrialSpec
from trainables.storage import DiskFull, is_full
from trainables.training.distributed import RankLost
from trainables.training.trial_log import TrialLog

if TYPE_CHECKING:
    import torch

    from trainables.training.cross_validation import CrossValidation
    from trainables.training.epoch_training import EpochTraining
    from trainables.training.train import Training


logger = logging.getLogger(__name__)


class Worker:
    """The attempts that one worker process trains together.

    Independent of the engine that runs the process. Importing this module does not import torch, which costs a driver
    2 s and 800 MB. :class:`search.engines.base.Engine` drives it; a replacement needs the same four methods.
    """

    def __init__(self, *, cpus: float, gpus: int) -> None:
        """Set torch's threads to ``cpus`` (at least 1) and use the first ``gpus`` GPUs that this process sees."""
        import torch

        if gpus:
            from trainables.models.embedding import CUBLAS_WORKSPACE

            os.environ.setdefault(*CUBLAS_WORKSPACE)  # before the first product, for trainings that are deterministic
        torch.set_num_threads(max(1, int(cpus)))
        self._devices = [torch.device("cuda", number) for number in range(gpus)] or [torch.device("cpu")]
        self._attempts: dict[str, Attempt] = {}

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories of the current attempts."""
        return tuple(self._attempts)

    def assign(self, ended: Sequence[str], begun: Sequence[TrialSpec]) -> None:
        """Drop the attempts in the directories ``ended``; train ``begun`` from the next step on."""
        for directory in ended:
            if attempt := self._attempts.pop(directory, None):
                attempt.end()
        if ended:
            self._free()
        self._attempts |= {spec.directory: Attempt(spec, self._devices) for spec in begun}

    def step(self) -> list[dict[str, Any]]:
        """Train the next epoch of each attempt and return their news; a resumed attempt first reports what it has.

        Failures are news and not exceptions: the process survives, and the study records the cause.

        Raises:
            RankLost: a process that shares an attempt's batches died; this process has to end too.
        """
        news = train_together(tuple(self._attempts.values())) if self._attempts else []
        if failed := [entry["directory"] for entry in news if "records" not in entry]:
            self.assign(failed, ())
        return news

    def end(self) -> None:
        """Drop all attempts and free the device."""
        self.assign(self.directories, ())

    def _free(self) -> None:
        gc.collect()  # modules refer to themselves through hooks, and their memory is needed now
        if self._devices[0].type == "cuda":
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


class Attempt:
    """The training of ``spec`` on ``devices``, as far as this process has trained it, and its log.

    Its news name it by ``directory`` and hold one of ``{"records": […], "finished": bool}`` (epochs not yet reported),
    ``{"failure": {"cause": …, "reason": …}}``, or ``{"disk_full": sentence}``. A full disk is not a failure of the
    training, which resumes when there is room.
    """

    def __init__(self, spec: TrialSpec, devices: "Sequence[torch.device]") -> None:
        self._spec = spec
        self._devices = devices
        self._training: EpochTraining | CrossValidation | None = None
        self._log: TrialLog | None = None
        self._reported = 0

    @property
    def log(self) -> TrialLog:
        """Return the log, opened before anything that may fail."""
        if self._log is None:
            self._log = TrialLog(self._spec, _described(self._devices))
            self._log.open()
        return self._log

    @property
    def training(self) -> "EpochTraining | CrossValidation":
        """Return the training, begun or resumed on first access."""
        from trainables.training.cross_validation import begin

        if self._training is None:
            with self.log.alone():
                self._training = begin(self._spec, *self._devices)
        return self._training

    @property
    def is_due(self) -> bool:
        """Return True if the next epoch is due; a resumed training first reports the epochs that it already has."""
        return self._reported == len(self.training.records)

    def reported(self) -> dict[str, Any]:
        """Return the news of the epochs not yet reported."""
        unreported = self.training.records[self._reported :]
        self._reported = len(self.training.records)
        if self.training.finished:
            self.log.done()
        return self._news(records=unreported, finished=self.training.finished)

    def failed(self, error: Exception) -> dict[str, Any]:
        """Log ``error``, which ended the training, and return its news.

        Raises:
            RankLost: ``error`` is one; the trial is retried elsewhere, as if this process had died.
        """
        from trainables.training.train import failure_of

        self.log.failure(error)
        self.log.close()
        if isinstance(error, RankLost):
            raise error
        if is_full(error):
            return self._news(disk_full=_where_full(error, self._spec))
        logger.error("The training failed.", exc_info=error)  # in the worker's own output too
        return self._news(failure=failure_of(error))

    def _news(self, **news: Any) -> dict[str, Any]:
        return {"directory": self._spec.directory, **news}

    def end(self) -> None:
        """Wait for pending writes, and release the training."""
        if self._training is not None:
            try:
                self._training.wait_for_checkpoints()
            except Exception as error:  # not an error: the driver has ended the trial
                with self.log.alone():
                    logger.warning("The last checkpoint could not be written (%s: %s).", type(error).__name__, error)
            self._training.end()
        if self._log is not None:
            self._log.close()
        self._training = self._log = None


def train_together(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Train the next epoch of each attempt that is due, and return the news of all; failures are independent."""
    failures: dict[Attempt, Exception] = {}
    due: list[Attempt] = []
    for attempt in attempts:
        try:
            if attempt.is_due:
                due.append(attempt)
        except Exception as error:
            failures[attempt] = error
    for attempt, epoch in zip(due, _next_epochs([attempt.training for attempt in due]), strict=True):
        if isinstance(epoch, Exception):
            failures[attempt] = epoch
        else:
            attempt.log.epoch(epoch)
    return [
        attempt.failed(failures[attempt]) if attempt in failures else attempt.reported() for attempt in attempts
    ]  # fmt: skip


def _next_epochs(trainings: "Sequence[EpochTraining | CrossValidation]") -> Sequence[EpochRecord | Exception]:
    if len(trainings) > 1:
        from trainables.training.stack import run_epochs

        return run_epochs(cast("Sequence[Training]", trainings))  # a stack has no cross-validation
    try:
        return [training.run_epoch() for training in trainings]
    except Exception as error:
        return [error]


def _described(devices: "Sequence[torch.device]") -> str:
    import torch

    if devices[0].type != "cuda":
        return f"{torch.get_num_threads()} CPU threads"
    return ", ".join(map(torch.cuda.get_device_name, devices))


def _where_full(error: Exception, spec: TrialSpec) -> str:
    """Return a sentence on the full disk, with the name of this machine."""
    full = error if isinstance(error, DiskFull) else DiskFull.at(as_path(spec.directory))
    return f"On {socket.gethostname()}: {full}"
