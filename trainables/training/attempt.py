"""The training of one worker process: an attempt at a trial, trained an epoch at a time, and its log."""

import gc
import logging
import os
import re
import socket
import time
import warnings
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trainables.common.errors import traced, without_password
from trainables.common.files import as_path, remove_drafts, write_whole
from trainables.common.part_tables import OURS, is_own
from trainables.common.process import Setting, contained
from trainables.common.storage import AnyPath, DiskFull, is_full
from trainables.metrics import score_text
from trainables.training.spec import EpochRecord, Epochs, Failed, News, NoSpace, TrialSpec

if TYPE_CHECKING:
    from trainables.training.cross_validation import CrossValidation
    from trainables.training.epoch_training import EpochTraining

logger = logging.getLogger(__name__)


class Worker:
    """A worker process's trainer, which trains one attempt at a time.

    Independent of the engine that runs the process. Importing this module does not import torch, which costs a driver
    2 s and 800 MB. :class:`search.engines.base.Engine` drives it; a replacement needs the same methods.

    A failure is news and not an exception: the process survives, and the study records the cause.
    """

    def __init__(self, *, cpus: float, gpu: bool) -> None:
        """Set torch's threads to ``cpus`` (at least 1); with ``gpu`` use the first GPU that this process sees."""
        import torch

        if gpu:
            from trainables.models.embedding import CUBLAS_WORKSPACE

            os.environ.setdefault(*CUBLAS_WORKSPACE)  # before the first product, for trainings that are deterministic
        torch.set_num_threads(max(1, int(cpus)))
        self._device = torch.device("cuda", 0) if gpu else torch.device("cpu")
        self._spec: TrialSpec | None = None
        self._training: EpochTraining | CrossValidation | None = None
        self._log: TrialLog | None = None
        self._reported = 0
        self._settings: list[Setting] = []  # of the process, as this training sees it

    def assign(self, spec: TrialSpec) -> None:
        """Drop the current attempt; train ``spec`` from the next step on."""
        self.end()
        self._spec, self._reported, self._settings = spec, 0, []

    def step(self) -> News:
        """Train the next epoch and return the news; a resumed training first reports the epochs that it has."""
        import torch

        assert self._spec is not None, "no attempt was assigned"
        if self._log is None:  # before anything that may fail
            is_gpu, threads = self._device.type == "cuda", f"{torch.get_num_threads()} CPU threads"
            self._log = TrialLog(self._spec, torch.cuda.get_device_name(self._device) if is_gpu else threads)
        try:
            with contained(self._settings):
                return self._trained(self._spec, self._log)
        except Exception as error:
            failed = self._failed(error, self._spec, self._log)
        self.end()
        return failed

    def _trained(self, spec: TrialSpec, log: "TrialLog") -> Epochs:
        from trainables.training.cross_validation import begin

        if self._training is None:
            self._training = begin(spec, self._device)
        if self._reported == len(self._training.records):
            log.epoch(self._training.run_epoch())
        unreported = self._training.records[self._reported :]
        self._reported = len(self._training.records)
        if self._training.finished:
            log.end("Training is done.")
        return Epochs(unreported, finished=self._training.finished)

    def _failed(self, error: Exception, spec: TrialSpec, log: "TrialLog") -> Failed | NoSpace:
        from trainables.training.train import failure_of

        log.end(f"Training failed.\n{traced(error)}")
        log.stop()
        if is_full(error):
            full = error if isinstance(error, DiskFull) else DiskFull.at(as_path(spec.directory))
            return NoSpace(f"On {socket.gethostname()}: {full}")
        logger.error("The training failed.\n%s", traced(error))  # in the worker's own output too
        return failure_of(error)

    def end(self) -> None:
        """Wait for pending writes, release the training of the attempt, if there is one, and free the device."""
        if self._training is not None:
            try:
                self._training.wait_for_checkpoints()
            except Exception as error:  # not an error: the driver has ended the trial
                logger.warning("The last checkpoint could not be written (%s: %s).", type(error).__name__, error)
            with contained(self._settings):
                self._training.end()
        if self._log is not None:
            self._log.stop()
        if self._spec is None:
            return
        self._spec = self._training = self._log = None
        gc.collect()  # modules refer to themselves through hooks, and their memory is needed now
        if self._device.type == "cuda":
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


# The log of an attempt.

FOLDER = "logs"
MESSAGES = 5000  # bounds the file, which is rewritten as a whole, if a program logs every step
WRITE_EVERY_S = 10.0  # for messages; epochs and the end are written at once


def read_log(directory: str) -> str:
    """Return the logs of all attempts at the trial in ``directory``, concatenated; empty if there is none."""
    logs: list[AnyPath] = sorted((as_path(directory) / FOLDER).glob("*.log"), key=lambda path: path.name)
    return "\n".join(path.read_text("utf-8") for path in logs)


class TrialLog(logging.Handler):
    """The log of one attempt, which captures log messages and warnings until :meth:`stop`.

    It captures messages of ``trainables`` and of the packages of user-defined parts; only the first ``messages`` are
    kept. A process has one log at a time.
    """

    def __init__(self, spec: TrialSpec, device: str, messages: int = MESSAGES) -> None:
        super().__init__(logging.INFO)
        self._messages = messages
        host = re.sub(r"[^\w.-]", "_", socket.gethostname())
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{host}-{os.getpid()}.log"
        self._path = f"{spec.directory.rstrip('/')}/{FOLDER}/{name}"
        self._lines: list[str] = []
        self._left_out = 0
        self._written = 0.0
        self._ended = False
        self._warned = False
        self._levels: dict[str, int] = {}  # the original level of each module
        with suppress(OSError):
            remove_drafts(as_path(self._path).parent)  # of an attempt that was killed while it wrote
        self._add(f"Training begins on {host}, process {os.getpid()}, {device}.")
        self._add(f"loss {spec.loss}, {dict(spec.hyperparameters)}, seed {spec.seed}, {spec.epochs} epochs")
        for name in sorted(_logged_modules(spec)):
            module = logging.getLogger(name)
            self._levels[name] = module.level
            if module.getEffectiveLevel() > logging.INFO:
                module.setLevel(logging.INFO)
            module.addHandler(self)
        self._show_warning: Any = warnings.showwarning  # until the log stops
        warnings.showwarning = self._warning
        self._write()

    def epoch(self, record: EpochRecord) -> None:
        fold = f"fold {record['fold']}, " if "fold" in record else ""
        values = record["metrics"].items()
        metrics = [f", {name} {'undefined' if value is None else score_text(name, value)}" for name, value in values]
        seconds = record["end"] - record["start"]
        loss = f"loss {record['loss']:.6g}" if "loss" in record else "trained"
        self._add(f"{fold}epoch {record['epoch']}: {loss}{''.join(metrics)}, {seconds:.1f} s")
        self._write()

    def stop(self) -> None:
        """Stop capturing; a training that is neither done nor failed is logged as stopped."""
        if self._show_warning is None:
            return
        warnings.showwarning, self._show_warning = self._show_warning, None
        for name, level in self._levels.items():
            module = logging.getLogger(name)
            module.removeHandler(self)
            module.setLevel(level)
        if not self._ended:
            self.end("Training was stopped before its last epoch.")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._message(f"{record.levelname} {record.name}: {self.format(record)}")
        except Exception:
            self.handleError(record)

    def _message(self, text: str) -> None:
        """Add a message; it is written within seconds if others follow, else with the next epoch."""
        if len(self._lines) >= self._messages:
            self._left_out += 1
            return
        self._add(text)
        if time.monotonic() - self._written > WRITE_EVERY_S:
            self._write()

    def _warning(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any, **more: Any
    ) -> None:
        self._message(f"{category.__name__}: {message} ({filename}:{lineno})")
        self._show_warning(without_password(str(message)), category, filename, lineno, *rest, **more)

    def end(self, text: str) -> None:
        """Write the last line: how the training ended."""
        if self._left_out:
            self._add(f"{self._left_out} further messages were left out.")
        self._add(text)
        self._ended = True
        self._write()

    def _add(self, text: str) -> None:
        self._lines.append(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {without_password(text)}")

    def _write(self) -> None:
        self._written = time.monotonic()
        text = "\n".join(self._lines) + "\n"
        try:
            write_whole(as_path(self._path), lambda file: file.write(text.encode(errors="backslashreplace")))
        except Exception as error:  # each storage backend raises its own
            if not self._warned:
                self._warned = True  # before the warning, which this log captures too
                logger.warning(
                    "The log %s cannot be written (%s: %s); the training continues.",
                    self._path, type(error).__name__, error,
                )  # fmt: skip


def _logged_modules(spec: TrialSpec) -> set[str]:
    """Return the packages whose messages are captured: ours, and those of user-defined parts."""
    parts = (spec.loss, spec.model.backbone, spec.training.sampler, *spec.metrics)
    dataset = type(spec.images.dataset).__module__
    own = [*filter(is_own, parts), *([] if dataset.startswith(OURS) else [dataset])]
    return {OURS.removesuffix("."), *(name.split(":")[0].split(".")[0] for name in own)}
