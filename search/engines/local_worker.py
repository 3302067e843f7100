"""The program of a worker process, whose argument is the file descriptor of its pipe.

It carries out the orders that arrive through the pipe. It exits when the pipe closes, even in the middle of an
epoch, so no worker outlives a driver that is killed.
"""

import logging
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainables.common import forecast

# Orders, after the pickled function that makes the worker, and answers. What is a user's own is pickled by itself: if
# it cannot be read, the rest can.


@dataclass(frozen=True, kw_only=True)
class Assign:
    """Drop the training, take the pickled ``spec`` instead, and train its first epoch; without a spec, wait."""

    spec: bytes | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """Train the next epoch."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """Return a function of an argument, both in the pickled pair ``task``."""

    task: bytes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a step or a call as ``value``; ``error`` and its traceback ``where`` if the call raised.

    The value of a step is None if the spec of the training cannot be read here. Each ``forecast`` that a call logs is
    sent as an answer before the one with the result.
    """

    value: Any = None
    error: Exception | None = None
    where: str = ""
    forecast: str = ""


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


def _assign(worker: Any, order: Assign) -> Answer:
    worker.end()
    if order.spec is None:
        return Answer()
    try:
        worker.assign(pickle.loads(order.spec))
    except Exception:
        traceback.print_exc()  # from the missing value the driver learns that the training was not begun
        return Answer()
    return Answer(value=worker.step())


def _serve(orders: "queue.SimpleQueue[Any]", send: Callable[[Answer], None]) -> None:
    worker = pickle.loads(orders.get())()
    forecasts = _Forecasts(send)
    if orders.empty():  # while the driver decodes images
        from trainables.training import cross_validation  # noqa: F401
    while True:
        match orders.get():
            case Assign() as order:
                send(_assign(worker, order))
            case Step():
                send(Answer(value=worker.step()))
            case Call(task=task):
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
