"""Tools that inject faults and repair them: processes and a store."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyftpdlib.handlers import FTPHandler

# The processes of this test, found by a mark in their environment whatever their parent.

RUN = "HOLDOUT_SOAK"
"""The variable that names the run, in every process started by it."""
DRIVER = "HOLDOUT_SOAK_DRIVER"
"""The variable that names the search, in its drivers and their children."""


@dataclass(frozen=True)
class Process:
    """A process and its title."""

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


# Checkpoint storage that refuses, is slow, or returns half a file.

REFUSES, LAGS, HALF = "refuses", "lags", "gives half"
LAG_S = 2.0


class FaultyHandler(FTPHandler):  # type: ignore[misc]
    """Handler of an FTP connection; ``fault`` is the present fault of all connections."""

    fault: ClassVar[str | None] = None

    def ftp_STOR(self, file: str, mode: str = "w") -> Any:
        if self._is_refused():
            return None
        return super().ftp_STOR(file, mode)

    def ftp_RETR(self, file: str) -> Any:
        if self._is_refused():
            return None
        if FaultyHandler.fault == HALF:
            content = Path(file).read_bytes()
            with tempfile.NamedTemporaryFile() as half:
                half.write(content[: len(content) // 2])
                half.flush()
                return super().ftp_RETR(half.name)  # it opens the file before it returns
        return super().ftp_RETR(file)

    def _is_refused(self) -> bool:
        """Return True if the request is refused; a slow store delays the answer."""
        if FaultyHandler.fault == LAGS:
            time.sleep(LAG_S)
        if FaultyHandler.fault == REFUSES:
            self.respond("451 The store is out of order.")
            return True
        return False
