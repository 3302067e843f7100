"""Processes of the other ranks: starting, watching and ending them, and the messages exchanged with rank 0."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _abort_process_group

from trainables.spec import TrialSpec
from trainables.training.distributed import RankLost

PATIENCE_S = 600.0
"""Timeout for a rank that does not reach a collective operation."""

END_S = 10.0
BLAME_S = 5.0
"""Time for a failed rank's error to arrive: the others notice first that it is gone."""


# Messages: orders to the other ranks (Begin, TrainEpoch, None to exit), and their answers (Done, Failed).


@dataclass(frozen=True, kw_only=True)
class Begin:
    """The order to join the ranks and prepare the training of ``spec``.

    ``folder`` holds the FileStore through which the ranks meet. ``dtype`` and ``threads`` are torch's settings in rank
    0's process, and ``optimizer`` is its optimizer's state, serialised by ``torch.save``.
    """

    spec: TrialSpec
    rank: int
    ranks: int
    device: str
    folder: str
    patience_s: float
    dtype: str
    threads: int
    optimizer: bytes


@dataclass(frozen=True, kw_only=True)
class TrainEpoch:
    """The order to train an epoch, with the image indices of its batches."""

    epoch: int
    batches: list[list[int]]


@dataclass(frozen=True)
class Done:
    """The answer that the last order is completed."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The error that ended a rank, with its traceback as text."""

    error: Exception
    where: str

    @classmethod
    def of(cls, error: Exception) -> "Failed":
        """Return ``error`` in a form that can be sent."""
        where = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # some cannot be pickled or unpickled
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return cls(error=error, where=where)


def join(begin: Begin) -> None:
    """Join torch's default process group using a FileStore, so no socket is opened for it."""
    store = dist.FileStore(f"{begin.folder}/store", begin.ranks)
    device = torch.device(begin.device)
    if device.type == "cuda":  # on a timeout NCCL aborts the operation instead of this process
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=begin.rank,
        world_size=begin.ranks,
        timeout=timedelta(seconds=begin.patience_s),
        device_id=device if device.type == "cuda" else None,
    )


def is_of_group(error: BaseException) -> bool:
    """Return True if a collective operation failed, as when a rank is gone; gloo raises plain RuntimeErrors."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "/gloo/" in str(error))


class OtherRanks:
    """The processes of the other ranks, one for each of ``devices`` except the first.

    They end with :meth:`end`, or when this process ends in any way, which closes their pipes. A rank that ends earlier
    is noticed at once, and operations that wait for it on this rank are aborted.
    """

    def __init__(self, spec: TrialSpec, devices: Sequence[torch.device], optimizer: bytes) -> None:
        self._failure: Exception | None = None
        self._ending = False
        self._answers = 0
        self._changed = threading.Condition()
        self._cuda = devices[0].type == "cuda"
        self._folder = tempfile.mkdtemp(prefix="holdout-ranks-")
        started = [_start() for _ in devices[1:]]
        self._processes = [process for process, _ in started]
        self._connections = [connection for _, connection in started]
        threading.Thread(target=self._listen, daemon=True, name="other ranks").start()
        try:
            begins = [
                Begin(
                    spec=spec, rank=rank, ranks=len(devices), device=str(device), folder=self._folder,
                    patience_s=PATIENCE_S, dtype=str(torch.get_default_dtype()).removeprefix("torch."),
                    threads=max(1, torch.get_num_threads() // len(devices)), optimizer=optimizer if rank else b"",
                )
                for rank, device in enumerate(devices)
            ]  # fmt: skip
            self._send(begins[1:])
            self.wait()
            join(begins[0])
        except BaseException:
            self.kill()
            raise

    def train(self, epoch: int, batches: list[list[int]]) -> None:
        """Order all ranks to train an epoch."""
        order = TrainEpoch(epoch=epoch, batches=batches)
        self._send([order] * len(self._connections))

    def _send(self, orders: Sequence[Begin | TrainEpoch]) -> None:
        self._answers = 0
        for connection, order in zip(self._connections, orders, strict=True):
            try:
                connection.send(order)
            except OSError as error:
                raise self.failure(BLAME_S) or RankLost("A rank has closed its pipe.") from error

    def wait(self) -> None:
        """Wait until all ranks have completed their order.

        Raises:
            RankLost: a rank died, or did not answer within :data:`PATIENCE_S`.
            Exception: a rank raised it.
        """
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._failure or self._answers == len(self._connections), timeout=PATIENCE_S
            )
        if self._failure:
            raise self._failure
        if not done:
            raise RankLost(f"A process of this training has not answered for {PATIENCE_S / 60:g} minutes.")

    def failure(self, patience_s: float) -> Exception | None:
        """Return the error of a failed rank, waiting up to ``patience_s`` seconds for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None, timeout=patience_s)
        return self._failure

    def _listen(self) -> None:
        rank_of = {connection: rank for rank, connection in enumerate(self._connections, start=1)}
        while rank_of:
            for connection in wait(list(rank_of)):
                assert isinstance(connection, Connection)
                rank = rank_of[connection]
                try:
                    answer = connection.recv()
                except (EOFError, OSError):
                    del rank_of[connection]
                    connection.close()
                    answer = None
                self._note(rank, answer)

    def _note(self, rank: int, answer: Done | Failed | None) -> None:
        with self._changed:
            if self._ending or self._failure:
                return
            if isinstance(answer, Done):
                self._answers += 1
            elif isinstance(answer, Failed):
                self._failure = answer.error
                self._failure.__cause__ = RuntimeError(f"on rank {rank}:\n{answer.where}")
            else:
                self._failure = RankLost(f"The process of rank {rank} of {len(self._connections) + 1} died.")
            self._changed.notify_all()
        if self._failure and self._cuda and (group := dist.group.WORLD) is not None:
            group.abort()  # operations would wait for the lost rank until the timeout

    def end(self) -> None:
        """End all ranks regularly and leave the process group; does nothing the second time."""
        if self._begin_to_end():
            for connection in self._connections:
                with suppress(OSError):  # it has already ended
                    connection.send(None)
            if dist.is_initialized():
                dist.destroy_process_group()
            self._reap(END_S)

    def kill(self) -> None:
        """Kill all ranks and leave the process group; does nothing the second time."""
        if self._begin_to_end():
            for process in self._processes:
                process.kill()
            if dist.is_initialized():
                # destroy_process_group waits for all ranks on GPUs; only this private function does not.
                _abort_process_group() if self._cuda else dist.destroy_process_group()
            self._reap(END_S)

    def _begin_to_end(self) -> bool:
        with self._changed:
            first, self._ending = not self._ending, True
        return first

    def _reap(self, patience_s: float) -> None:
        for process in self._processes:
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _start() -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that waits for orders from a pipe, with this process's module search path."""
    ours, theirs = Pipe()
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    with theirs:
        program = [sys.executable, "-P", "-m", f"{__package__}.other_rank", str(theirs.fileno())]
        process = subprocess.Popen(
            program, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
        )
    return process, ours
