"""Tools that inject faults and repair them: processes, clocks, stores and networks."""

import functools
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyftpdlib.handlers import FTPHandler
from support.services import run

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

    @property
    def started_s(self) -> float:
        """The time of its start on the clock of :func:`now_s`; the present for a dead process."""
        with suppress(OSError):
            return int(_stat(self.pid)[19]) / os.sysconf("SC_CLK_TCK")
        return now_s()


def now_s() -> float:
    """Return the seconds since boot, the clock of process start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the name: state, parent and others."""
    return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()


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
            parents.setdefault(int(_stat(process.pid)[1]), []).append(process)
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += [child.pid for child in children]
    return found


def end(processes: list[Process]) -> None:
    for process in processes:
        process.send(signal.SIGKILL)


# A wrong clock for a driver, by a preloaded library.


@functools.cache
def _library() -> Path:
    """Return the library, built once per process."""
    built = Path(tempfile.mkdtemp(prefix="holdout-clock-")) / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(built), str(source)], check=True)
    return built


class Clock:
    """The clock of processes started with :attr:`environment`, with an offset in seconds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of processes with this clock."""
        return {"LD_PRELOAD": str(_library()), "HOLDOUT_SOAK_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Set the offset; processes with this clock keep the file open."""
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    def right(self) -> None:
        self.jump(0)


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


# A Ray node in a separate network, whose cable can be pulled.

JOIN_S = 120.0


class Island:
    """A network namespace with a cable to this machine's, from ``here`` to ``there``, and its Ray node."""

    def __init__(self) -> None:
        self.name = f"soak{secrets.token_hex(3)}"
        self._cable = f"{self.name}h"
        while run("ip", "addr", "show", "to", f"{(network := f'10.177.{secrets.randbelow(256)}')}.0/24"):
            pass  # several islands may exist at once
        self.here, self.there = f"{network}.1", f"{network}.2"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "addr", "add", f"{self.here}/30", "dev", self._cable)
        run("ip", "link", "set", self._cable, "up")
        for command in (("addr", "add", f"{self.there}/30", "dev", "eth0"), ("link", "set", "eth0", "up")):
            run("ip", "-n", self.name, *command)
        run("ip", "-n", self.name, "link", "set", "lo", "up")

    def join(self, address: str) -> None:
        """Start a node of the cluster at ``address`` unless one is alive."""
        deadline = time.monotonic() + JOIN_S
        while not self._is_member_of(address):
            assert time.monotonic() < deadline, f"no node at {self.there} joins the cluster"
            if not self._raylets():
                end(self.processes())
                run(
                    *("ip", "netns", "exec", self.name, "ray", "start", f"--address={address}"),
                    *(f"--node-ip-address={self.there}", "--num-cpus=1", "--object-store-memory=157286400"),
                )
            time.sleep(1)

    def cut(self) -> None:
        run("ip", "link", "set", self._cable, "down")

    def fix(self) -> None:
        run("ip", "link", "set", self._cable, "up")

    def processes(self) -> list[Process]:
        found = []
        for pid in map(int, run("ip", "netns", "pids", self.name).split()):
            with suppress(OSError):  # it ended just now
                found.append(Process(pid, (Path("/proc") / str(pid) / "comm").read_text().strip()))
        return found

    def _is_member_of(self, address: str) -> bool:
        """Return True if the cluster at ``address`` takes the node for alive."""
        from ray._raylet import GcsClient

        nodes = GcsClient(address=address).get_all_node_info().values()
        return any(node.node_manager_address == self.there and node.state == 0 for node in nodes)

    def _raylets(self) -> list[Process]:
        """Return the node's raylet, if it lives."""
        return [process for process in self.processes() if process.title == "raylet"]

    def remove(self) -> None:
        for process in self.processes():
            process.send(signal.SIGKILL)
        run("ip", "netns", "del", self.name)  # and with it the cable


@contextmanager
def island() -> Iterator[Island]:
    """Yield a separate network, removed afterwards."""
    made = Island()
    try:
        yield made
    finally:
        made.remove()
