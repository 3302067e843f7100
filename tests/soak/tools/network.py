"""A Ray node in a separate network, whose cable can be pulled."""

import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.services import run

from soak.tools.processes import Process, end

JOIN_S = 120.0


def _free_network() -> str:
    """Return the first three numbers of an unused network: several islands may exist at once."""
    while run("ip", "addr", "show", "to", f"{(network := f'10.177.{secrets.randbelow(256)}')}.0/24"):
        pass
    return network


class Island:
    """A network namespace with a cable to this machine's, from ``here`` to ``there``, and its Ray node."""

    def __init__(self) -> None:
        self.name = f"soak{secrets.token_hex(3)}"
        self._cable = f"{self.name}h"
        network = _free_network()
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
