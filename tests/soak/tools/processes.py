"""The processes that this test started, known by a mark in their environment, whoever their parent is."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RUN = "HOLDOUT_SOAK"
"""Names the fault injector's run, in all that it starts."""
DRIVER = "HOLDOUT_SOAK_DRIVER"
"""Names the search, in its drivers and all that they start."""


@dataclass(frozen=True)
class Process:
    """A process and what it was called."""

    pid: int
    title: str

    def send(self, number: int) -> None:
        """Send a signal, if it still lives."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def started_s(self) -> float:
        """When it was started, as :func:`now_s` says it; now, if it lives no more."""
        with suppress(OSError):
            return int(_stat(self.pid)[19]) / os.sysconf("SC_CLK_TCK")
        return now_s()


def now_s() -> float:
    """The seconds since this machine was started, in which the system keeps when a process was."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _stat(pid: int) -> list[str]:
    """What stands in ``/proc`` about a process behind its name: its state, its parent and so on."""
    return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()


def marked(name: str, value: str) -> list[Process]:
    """The living processes in whose environment ``name`` is ``value``, without this one."""
    wanted = f"{name}={value}".encode()
    return [process for process, variables in _living() if wanted in variables and process.pid != os.getpid()]


def _living() -> Iterator[tuple[Process, list[bytes]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended just now
            variables = (folder / "environ").read_bytes().split(b"\0")
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if title:  # a zombie has none
                yield Process(int(folder.name), title), variables


def descendants(pid: int) -> list[Process]:
    """A process's children, their children and so on, without itself."""
    parents: dict[int, list[Process]] = {}
    for process, _ in _living():
        with suppress(OSError):
            parents.setdefault(int(_stat(process.pid)[1]), []).append(process)
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += [child.pid for child in children]
    return found


def end(processes: list[Process]) -> None:
    """End what is left of them."""
    for process in processes:
        process.send(signal.SIGKILL)
