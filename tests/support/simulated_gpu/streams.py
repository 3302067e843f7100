"""The order of operations on a simulated GPU by streams and events, and its memory.

Time is logical: a stream counts its operations, and its clock says how many operations of each stream are finished
before its next one starts. Memory knows who wrote and read it last, so an access that is not ordered is found whatever
the timing.
"""

import sys
import threading
import types
import warnings
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import torch

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
ROOT = f"{Path(__file__).parents[3]}/"
"""The repository, in a folder of any name."""
PARTS = tuple(f"{ROOT}{name}/" for name in ("trainables", "search", "benchmarks", "holdout"))
SEEN: Counter[tuple[str, str, str]] = Counter()
"""Counts by kind, operation and line. The kinds of ``WAITS`` make the host wait, or another thread ("sync, beside");
``H2D`` and ``D2H`` do not; ``unordered`` are floating-point sums by atomic additions."""
WAITS = ("sync", "pageable H2D", "index H2D")
FREED_TOO_EARLY: list[str] = []
"""Lines that made memory which was freed while another stream could still use it."""
STATE = types.SimpleNamespace(
    on=False, debug="default", warned=False, peak=0, total=8 << 30, limit=8 << 30, streams=0, rng=None,
    capability=(9, 0), capture=None, main=None,
)  # fmt: skip
"""The simulated GPU: its limits, what was asked of it, and its random numbers."""
LOCK = threading.RLock()
LOCAL = threading.local()


class SimulationError(RuntimeError):
    """An operation that a GPU would refuse, or compute wrongly without an error."""


def line() -> str:
    """Return the innermost line of the project that is running, such as ``trainables/a.py:3``."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PARTS):
            return f"{name.removeprefix(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "backward"


def note(kind: str, operation: str) -> None:
    """Count an operation; warn or raise if it makes the host wait and the sync debug mode says so."""
    makes_wait = kind in WAITS
    if STATE.capture is not None and STATE.capture.takes_part() and kind not in ("unordered", "event"):
        raise SimulationError(f"operation not permitted when stream is capturing: {operation} at {line()}")
    beside = makes_wait and threading.current_thread() is not threading.main_thread()
    SEEN[f"{kind}, beside" if beside else kind, operation, line()] += 1
    if STATE.debug != "default" and makes_wait:
        if STATE.debug == "error":
            raise RuntimeError(f"called a synchronizing CUDA operation: {operation} at {line()}")
        warnings.warn(f"called a synchronizing CUDA operation: {operation}", stacklevel=2)


class Stream:
    """A queue of operations; ``clock`` counts those of each stream that its next operation is ordered behind."""

    def __init__(self) -> None:
        self.device = CUDA
        self.clock: dict[Stream, int] = {self: 0}

    def tick(self) -> int:
        """Count an operation, and return its number."""
        self.clock[self] += 1
        return self.clock[self]

    def see(self, clock: "dict[Stream, int]") -> None:
        """Order the next operation behind those of ``clock``."""
        for stream, time in list(clock.items()):
            self.clock[stream] = max(self.clock.get(stream, 0), time)

    def sees(self, clock: "dict[Stream, int]") -> bool:
        """Return True if the next operation is ordered behind those of ``clock``."""
        return all(self.clock.get(stream, 0) >= time for stream, time in clock.items())

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:
        self.see(event.clock)

    def wait_stream(self, stream: "Stream") -> None:
        self.see(stream.clock)

    def synchronize(self) -> None:
        note("sync", "stream.synchronize")


class Event:
    """A point in the order of a stream."""

    def __init__(self, **_: Any) -> None:
        self.clock: dict[Stream, int] = {}

    def record(self, stream: Stream | None = None) -> None:
        self.clock = dict((stream or current()).clock)

    def synchronize(self) -> None:
        note("event", "event.synchronize")


DEFAULT, POOL = Stream(), [Stream() for _ in range(32)]
HELD: Counter[Stream] = Counter()
RESERVED: Counter[Stream] = Counter()
"""Bytes by stream: freed blocks stay with the stream that they were made on, until the cache is emptied."""


def current(device: Any = None) -> Stream:
    """Return the current stream of this thread; a thread of autograd uses that of the main thread, which waits."""
    stream: Stream = (STATE.main if of_autograd() else getattr(LOCAL, "stream", None)) or DEFAULT
    return stream


def of_autograd() -> bool:
    return isinstance(threading.current_thread(), threading._DummyThread)


class Memory:
    """A storage on the device: the operations that wrote it last, and those that have read it since."""

    def __init__(self, size: int) -> None:
        self.written: dict[Stream, int] = {}
        self.read: dict[Stream, int] = {}
        self.recorded: set[Stream] = set()
        home = current()
        with LOCK:
            if HELD.total() + size > STATE.limit:
                raise torch.OutOfMemoryError(f"CUDA out of memory (simulated), at {line()}")
            HELD[home] += size
            RESERVED[home] = max(RESERVED[home], HELD[home])
            STATE.peak = max(STATE.peak, RESERVED.total())
        weakref.finalize(self, _freed, size, home, self.read, self.recorded, line())

    def use(self, operation: str, *, writes: bool) -> None:
        """Record an operation of the current stream.

        Raises:
            SimulationError: it is not ordered behind an operation of another stream that it conflicts with.
        """
        stream = current()
        time = stream.tick()
        if not stream.sees(self.written) or (writes and not stream.sees(self.read)):
            raise SimulationError(f"{operation} at {line()} races with another stream: it waits for no event")
        if writes:
            self.written = {stream: time}
        self.read[stream] = time


def _freed(size: int, home: Stream, read: dict[Stream, int], recorded: set[Stream], made: str) -> None:
    with LOCK:
        HELD[home] -= size
    if not home.sees({stream: time for stream, time in read.items() if stream not in recorded}):
        FREED_TOO_EARLY.append(made)
