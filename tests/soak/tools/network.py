"""A Ray node in a network of its own, behind a cable that can be pulled."""

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.services import run

from soak.tools.processes import Process, end

HERE, THERE = "10.177.0.1", "10.177.0.2"
"""The addresses of the cable's two ends."""
JOIN_S = 120.0


def why_not() -> str | None:
    """Why there is no other network here; None where there is."""
    if shutil.which("ip") is None or os.getuid() != 0:
        return "needs network namespaces: root, and Debian's package iproute2"
    done = subprocess.run(["ip", "addr", "show", "to", HERE], capture_output=True, text=True, check=False)
    return f"needs the address {HERE}, which this machine has already" if done.stdout else None


class Island:
    """A network namespace with a cable to this machine's, and the Ray node in it."""

    def __init__(self) -> None:
        self.name = f"soak{secrets.token_hex(3)}"
        self._cable = f"{self.name}h"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "addr", "add", f"{HERE}/30", "dev", self._cable)
        run("ip", "link", "set", self._cable, "up")
        for command in (("addr", "add", f"{THERE}/30", "dev", "eth0"), ("link", "set", "eth0", "up")):
            run("ip", "-n", self.name, *command)
        run("ip", "-n", self.name, "link", "set", "lo", "up")

    def join(self, address: str) -> None:
        """Start a node here that belongs to the cluster at ``address``, where none is alive."""
        deadline = time.monotonic() + JOIN_S
        while not _is_member(address):
            assert time.monotonic() < deadline, f"no node at {THERE} joins the cluster"
            if not self._raylets():
                end(self.processes())
                run(
                    *("ip", "netns", "exec", self.name, "ray", "start", f"--address={address}"),
                    *(f"--node-ip-address={THERE}", "--num-cpus=1", "--object-store-memory=157286400"),
                )
            time.sleep(1)

    def cut(self) -> None:
        """Pull the cable."""
        run("ip", "link", "set", self._cable, "down")

    def mend(self) -> None:
        """Plug it in again."""
        run("ip", "link", "set", self._cable, "up")

    def processes(self) -> list[Process]:
        """All that runs here."""
        found = []
        for pid in map(int, run("ip", "netns", "pids", self.name).split()):
            with suppress(OSError):  # it ended just now
                found.append(Process(pid, (Path("/proc") / str(pid) / "comm").read_text().strip()))
        return found

    def _raylets(self) -> list[Process]:
        """The node's first process, if it lives."""
        return [process for process in self.processes() if process.title == "raylet"]

    def remove(self) -> None:
        """End what runs here, and take the network away."""
        for process in self.processes():
            process.send(signal.SIGKILL)
        run("ip", "netns", "del", self.name)  # and with it the cable


def _is_member(address: str) -> bool:
    """Whether the cluster at ``address`` takes the node behind the cable to be alive."""
    from ray._raylet import GcsClient

    nodes = GcsClient(address=address).get_all_node_info().values()
    return any(node.node_manager_address == THERE and node.state == 0 for node in nodes)


@contextmanager
def island() -> Iterator[Island]:
    """A network of its own, for a while."""
    made = Island()
    try:
        yield made
    finally:
        made.remove()
