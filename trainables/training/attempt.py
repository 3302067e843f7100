"""One attempt at a training on a worker."""

import logging
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
    from trainables.training.train import Training


logger = logging.getLogger(__name__)


class Attempt:
    """One worker's attempt at training ``spec`` on ``devices``, with its own log.

    Its news carry the ``directory`` of the trial and one of: ``{"records": […], "finished": bool}``, the epochs not yet
    reported; ``{"failure": {"cause": …, "reason": …}}``; or ``{"disk_full": sentence}``, which does not fail the trial:
    it is resumed when there is space.
    """

    def __init__(self, spec: TrialSpec, devices: "Sequence[torch.device]") -> None:
        self._spec = spec
        self._devices = devices
        self._training: Training | CrossValidation | None = None
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
    def training(self) -> "Training | CrossValidation":
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


def _next_epochs(trainings: "Sequence[Training | CrossValidation]") -> Sequence[EpochRecord | Exception]:
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
