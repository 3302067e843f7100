"""Real services for tests: a Ray cluster of several nodes on this machine, PostgreSQL, an MLflow server."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


class Nodes:
    """A Ray cluster on this machine whose nodes can be killed."""

    def __init__(self, cpus: int) -> None:
        from ray.cluster_utils import Cluster

        self.port = free_port()
        # An agent's own default port may be taken by another Ray of this machine, and then no job can be submitted.
        self._agents = {"dashboard_agent_listen_port": free_port()}
        head = {"num_cpus": cpus, "include_dashboard": True, "dashboard_port": self.port, **self._agents}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)

    @property
    def address(self) -> str:
        """The dashboard's address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def gcs_address(self) -> str:
        """The address that drivers connect to."""
        address: str = self._cluster.gcs_address
        return address

    def add(self, cpus: int) -> Any:
        """One node more."""
        return self._cluster.add_node(num_cpus=cpus, dashboard_agent_listen_port=free_port())

    def kill(self, node: Any) -> None:
        """A node dies, without a word to anybody."""
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        """End all that was started."""
        self._cluster.shutdown()


@contextmanager
def ray_nodes(token_file: Path, cpus: int = 1) -> Iterator[Nodes]:
    """A Ray cluster of one node, with a token of its own."""
    token_file.write_text(secrets.token_hex(32))
    token_file.chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token_file))
        patch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        from search.cluster.session import import_ray

        import_ray()
        nodes = Nodes(cpus)
        try:
            yield nodes
        finally:
            nodes.shutdown()


def run(*command: str | Path, **options: Any) -> str:
    """Run a program to its end and return what it prints."""
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **options).stdout
