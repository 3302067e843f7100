"""An engine without Ray: worker processes of this machine, reused from trial to trial, and their program.

A worker carries out the orders that arrive through its pipe. It exits when the pipe closes, even in the middle of an
epoch, so no worker outlives a driver that is killed.
"""

import json
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from search.engines.base import Engine, Queue, Resources, Running
from search.engines.capacity import Node, at_once, trials_on
from search.engines.waiting import Patience, Silences
from trainables.common import forecast
from trainables.common.errors import Failure, without_password
from trainables.common.process import allotted_cpus
from trainables.training.spec import seconds_of

POLL_S = 0.2
"""Time between two looks at the queue and at the workers' silence."""

END_S = 5.0
"""Time for a worker that closed its pipe to exit."""

PROGRAM = f"import json, sys; sys.path[:] = json.loads(sys.argv.pop()); from {__name__} import main; main()"
"""Imported and not run as ``-m``, so that an answer has the same class on both sides."""

CALLS = 3
"""Attempts at a call whose workers die."""


# Orders, after the pickled function that makes the worker, and answers. What is a user's own is pickled by itself: if
# it cannot be read, the rest can.

Order = tuple[Literal["assign", "step", "call"], bytes | None]
"""``assign``: drop the training, take the one of this pickled spec and train its first epoch; without a spec, wait.
``step``: train the next epoch. ``call``: return a function of an argument, which are a pickled pair."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a step or a call as ``value``; ``error`` and its traceback ``where`` if the call raised.

    A call's forecasts are answers of their own, sent before its result.
    """

    value: Any = None
    error: Exception | None = None
    where: str = ""
    forecast: str = ""


class Local(Engine):
    """One worker process for each trial that fits on this machine.

    The processes start with the session and import PyTorch while the driver decodes images. One that dies or falls
    silent is replaced, and its trial resumes from its checkpoint. Where memory runs out, Linux ends a worker first.
    """

    title = "local workers"

    def __init__(self, resources: Resources, max_concurrent: int | None = None) -> None:
        super().__init__(resources, max_concurrent)
        self._processes: dict[int, _Process] = {}
        self._events: queue.SimpleQueue[tuple[_Process, Answer | None]] = queue.SimpleQueue()

    @contextmanager
    def session(self) -> Iterator[None]:
        """Start the workers; end all of them on exit."""
        try:
            for number in range(self.slots()):
                self._process(number)
            yield
        finally:
            self._end(list(self._processes.values()))

    def slots(self) -> int:
        node: Node = {"CPU": allotted_cpus(), "GPU": len(visible_gpus()) if self.resources.gpus_per_trial else 0}
        return at_once(self.resources, self.max_concurrent, [node])

    def run(self, queue: Queue, concurrent: int) -> None:
        silences = Silences(limits=self.limits)
        trials: dict[_Process, Running] = {}
        held: set[_Process] = set()  # workers that have still to drop a trial that ended
        try:
            while True:
                for process in [self._process(number) for number in range(concurrent)]:
                    if process.is_busy:
                        continue
                    if process in trials:
                        process.order(("step", None))
                    elif running := queue.next_trial():
                        trials[process] = running
                        held.discard(process)
                        silences.forget(process.name)  # the next epoch builds the model, as the first one does
                        silences.watch(process.name, running.study_name)
                        process.order(("assign", pickle.dumps(running.spec)))
                    elif process in held:
                        held.discard(process)
                        process.order(("assign", None))
                if queue.done and not any(process.is_busy for process in self._processes.values()):
                    return
                if event := self._next_event():
                    process, answer = event
                    trial = trials.pop(process, None)
                    news = answer.value if answer else None
                    if trial and news is not None:
                        silences.heard(process.name, seconds_of([news]))
                        if queue.on_trial_result(trial, news):
                            trials[process] = trial
                        else:
                            held.add(process)
                    else:
                        silences.forget(process.name)
                        if trial:  # else the worker has dropped its trial, and waits
                            queue.on_trial_error(trial, process.death(), own=True)
                if silences.is_due:
                    for name, silence in silences.too_long().items():
                        self._processes[int(name)].kill(silence)
        except BaseException:
            self._end(list(self._processes.values()))
            raise

    def map(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """Return ``function`` of each argument; raise if the workers of one die :data:`CALLS` times, or if all hang."""
        waiting = deque(range(len(arguments)))
        running: dict[_Process, int] = {}
        results: dict[int, Any] = {}
        deaths: Counter[int] = Counter()
        patience = Patience(len(arguments))
        workers = min(len(arguments), self.slots())
        try:
            while waiting or running:
                for process in [self._process(number) for number in range(workers)]:
                    if waiting and not process.is_busy:
                        running[process] = number = waiting.popleft()
                        process.order(("call", pickle.dumps((function, arguments[number]))))
                event = self._next_event()
                if event is None or event[0] not in running:
                    patience.poll(len(waiting) + len(running))
                    continue
                process, answer = event
                if answer and answer.forecast:
                    forecast.logger.info("Worker %s: %s", process.name, answer.forecast)
                    patience.answered()
                    continue
                number = running.pop(process)
                if answer is None:
                    deaths[number] += 1
                    if deaths[number] == CALLS:
                        raise Failure(
                            f"A worker died {CALLS} times at the same task ({process.death()}). Check that the machine "
                            "has enough memory; run the same command again to resume."
                        )
                    waiting.appendleft(number)
                elif answer.error is not None:
                    raise answer.error from RuntimeError(answer.where)
                else:
                    results[number] = answer.value
                    patience.answered()
        finally:
            self._end(list(running))
        return [results[number] for number in range(len(arguments))]

    def _process(self, number: int) -> "_Process":
        """Return worker ``number``, started if it is not running."""
        if number not in self._processes:
            resources = self.resources
            kind: Callable[..., Any] = self.worker
            make = partial(kind, cpus=resources.cpus_per_trial, gpu=resources.gpus_per_trial > 0)
            environment = _environment(number, resources)
            self._processes[number] = _Process(number, pickle.dumps(make), environment, self._events)
        return self._processes[number]

    def _next_event(self) -> "tuple[_Process, Answer | None] | None":
        """Wait up to POLL_S; return the next answer and its worker, None instead of an answer if the worker died."""
        try:
            process, answer = self._events.get(timeout=POLL_S)
        except queue.Empty:
            return None
        if self._processes.get(process.number) is not process:
            return None  # it was ended on purpose
        process.is_busy = bool(answer and answer.forecast)
        if answer is None:
            del self._processes[process.number]
            process.death()
        return process, answer

    def _end(self, processes: "Sequence[_Process]") -> None:
        for process in processes:
            self._processes.pop(process.number, None)
            process.kill("it was ended")
        for process in processes:
            process.death()


class _Process:
    """A worker process, the driver's end of its pipe, and a thread that puts its answers into ``events``.

    ``worker`` is the pickled function that makes the object which trains there.
    """

    def __init__(
        self,
        number: int,
        worker: bytes,
        environment: Mapping[str, str],
        events: "queue.SimpleQueue[tuple[_Process, Answer | None]]",
    ) -> None:
        self.number = number
        self.name = str(number)
        self.is_busy = False
        self._reason: str | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by death(), which quotes its end
        self._connection, theirs = Pipe()
        folders = [entry or os.getcwd() for entry in sys.path]  # PYTHONPATH takes none with its separator in the name
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno()), json.dumps(folders)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                env=environment,
            )
        threading.Thread(target=self._listen, args=(events,), daemon=True, name=f"worker {number}").start()
        self._send(worker)

    def order(self, order: Order) -> None:
        """Send an order; the worker is busy until its answer, or its death, is among the events."""
        self.is_busy = True
        self._send(order)

    def _send(self, message: bytes | Order) -> None:
        with suppress(OSError):  # it has died, which its listener notes
            self._connection.send(message)

    def _listen(self, events: "queue.SimpleQueue[tuple[_Process, Answer | None]]") -> None:
        while True:
            try:
                answer = self._connection.recv()
            except Exception:  # the pipe is closed, or what came cannot be read
                events.put((self, None))
                return
            events.put((self, answer))

    def kill(self, reason: str) -> None:
        """End the process, also one that is stopped or hangs; ``reason`` is what :meth:`death` returns."""
        self._reason = self._reason or reason
        self._process.kill()

    def death(self) -> str:
        """Wait for the end of the process and return its reason."""
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with suppress(OSError):
            self._connection.close()
        if self._reason is None:
            with self._said as said:
                said.seek(0)
                last = without_password(said.read().decode(errors="replace").strip()).rpartition("\n")[2]
            self._reason = (
                f"its process was ended by {signal.Signals(-code).name}"
                if code < 0
                else f"its process ended with code {code}{f', {last}' if last else ''}"
            )
        self._said.close()
        return self._reason


def _environment(number: int, resources: Resources) -> dict[str, str]:
    """Return the environment of worker ``number``: a trial's threads, and its GPU."""
    environment = {"OMP_NUM_THREADS": str(max(1, int(resources.cpus_per_trial))), **os.environ}
    if asked := resources.gpus_per_trial:
        environment["CUDA_VISIBLE_DEVICES"] = visible_gpus()[number // trials_on({"GPU": 1}, {"GPU": asked})]
    return environment


def visible_gpus() -> list[str]:
    """Return the names of this process's GPUs, as ``CUDA_VISIBLE_DEVICES`` takes them."""
    if named := [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]:
        return named
    import torch  # takes seconds

    return [str(number) for number in range(torch.cuda.device_count())]


# The program of a worker process, whose last argument is the file descriptor of its pipe.


class _Forecasts(logging.Handler):
    """A handler that sends what it gets to the driver."""

    def __init__(self, send: Callable[[Answer], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(Answer(forecast=record.getMessage()))


def _call(task: bytes) -> Answer:
    try:
        function, argument = pickle.loads(task)
        return Answer(value=function(argument))
    except Exception as error:
        where = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # some exceptions cannot be pickled, or not be made again
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return Answer(error=error, where=where)


def _assign(worker: Any, spec: bytes | None) -> Answer:
    worker.end()
    if spec is None:
        return Answer()
    worker.assign(pickle.loads(spec))
    return Answer(value=worker.step())


def _serve(orders: "queue.SimpleQueue[Any]", send: Callable[[Answer], None]) -> None:
    worker = pickle.loads(orders.get())()
    forecasts = _Forecasts(send)
    if orders.empty():  # while the driver decodes images
        from trainables.training import cross_validation  # noqa: F401
    while True:
        match orders.get():
            case "assign", spec:
                send(_assign(worker, spec))
            case "step", _:
                send(Answer(value=worker.step()))
            case "call", task:
                forecast.logger.addHandler(forecasts)
                send(_call(task))
                forecast.logger.removeHandler(forecasts)


def _listen(connection: Connection, orders: "queue.SimpleQueue[Any]") -> None:
    while True:
        try:
            orders.put(connection.recv())
        except (EOFError, OSError):
            os._exit(1)  # the driver has closed the pipe, or is gone


def main() -> None:
    """Carry out orders until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the driver, which ends the workers
    with suppress(OSError):  # if memory runs out, Linux ends a worker, whose trial is retried, and not the driver
        Path("/proc/self/oom_score_adj").write_text("500")
    connection = Connection(int(sys.argv.pop()))  # a user's code may parse the command line
    os.set_inheritable(connection.fileno(), False)
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, orders), daemon=True).start()
    _serve(orders, connection.send)
