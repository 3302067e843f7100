"""The processes that faults hit, found by a mark in their environment whatever their parent."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RUN = "HOLDOUT_SOAK"
"""The variable that names the run, in every process started by it."""
DRIVER = "HOLDOUT_SOAK_DRIVER"
"""The variable that names the search, in its drivers and their children."""


@dataclass(frozen=True)
class Process:
    pid: int
    title: str

    def send(self, number: int) -> None:
        """Send a signal if the process still lives."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def marked(name: str, value: str) -> list[Process]:
    """Return the living processes with ``name=value`` in their environment, except this one."""
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
    parents: dict[int, list[Process]] = {}
    for process, _ in _living():
        with suppress(OSError):
            state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(state[1]), []).append(process)
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += [child.pid for child in children]
    return found


def end(processes: list[Process]) -> None:
    for process in processes:
        process.send(signal.SIGKILL)
