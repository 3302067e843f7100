"""Real services for tests: a Ray cluster of several nodes on this machine, PostgreSQL, an MLflow server."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg
import pytest
from psycopg import sql

from search.tables import ray_mistakes

ROOT = Path(__file__).parents[2]
JOIN_S = 120
TOKEN = secrets.token_hex(32)
"""The token of all Ray clusters of this process: Ray reads it once."""
SECRET = "not-for-every-eye"
"""What the environment of the shared cluster's nodes has."""


needs_ray = pytest.mark.skipif(bool(ray_mistakes()), reason="".join(ray_mistakes()))
"""Skips a test that starts Ray's workers where they cannot start; :func:`ray_nodes` skips by itself."""

PORTS = range(20_000, 32_768)
"""Ports that neither the system assigns to connections nor Ray to its workers."""


def free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as opened, suppress(OSError):
            opened.bind(("", port))
            return port


def _agent_ports() -> dict[str, int]:
    """Return ports for a node's agents.

    Another Ray of this machine may use the default ports, and then no job can be submitted. A node without given ports
    waits 15 s for its agents, which is too short on a busy machine, and dies.
    """
    names = ("dashboard_agent_listen_port", "metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
    return {name: free_port() for name in names}


class Nodes:
    """A Ray cluster on this machine whose nodes can be killed.

    A ``bare`` cluster has only the processes that trainings need: it takes no jobs and never grows.
    """

    def __init__(self, cpus: int, *, bare: bool = False) -> None:
        from ray.cluster_utils import Cluster

        self.port = free_port()
        head = {"num_cpus": cpus, "include_dashboard": not bare, "dashboard_port": self.port, **_agent_ports()}
        if bare:
            head |= {"no_monitor": True, "include_log_monitor": False}
        self._cluster = Cluster(initialize_head=True, head_node_args={**head, "wait": False})
        self._cluster.wait_for_nodes(JOIN_S)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def gcs_address(self) -> str:
        address: str = self._cluster.gcs_address
        return address

    @property
    def head(self) -> Any:
        return self._cluster.head_node

    def add(self, cpus: int) -> Any:
        """Add a node, and wait until it has joined."""
        node = self._cluster.add_node(wait=False, num_cpus=cpus, **_agent_ports())
        self._cluster.wait_for_nodes(JOIN_S)
        return node

    def kill(self, node: Any) -> None:
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextmanager
def ray_nodes(token_file: Path, cpus: int = 1, *, bare: bool = False, **environment: str) -> Iterator[Nodes]:
    """Yield a Ray cluster of one node with its token in a file; ``environment`` is set for it and this process."""
    for mistake in ray_mistakes():
        pytest.skip(mistake)
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token_file))
        for name, value in {**environment, "RAY_AUTH_MODE": "token"}.items():  # a session restores what it changed
            patch.setenv(name, value)
        patch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        from search.engines.ray_session import import_ray

        import_ray()
        nodes = Nodes(cpus, bare=bare)
        try:
            yield nodes
        finally:
            nodes.shutdown()


def run(*command: str | Path, **options: Any) -> str:
    """Run a program to its end and return what it prints."""
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, **options).stdout


class Postgres:
    """A PostgreSQL server from this machine's packages, protected by a password."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.password_file = folder / "pgpass"
        password = secrets.token_hex(16)
        self.password_file.write_text(f"127.0.0.1:{self.port}:*:holdout:{password}\n")
        self.password_file.chmod(0o600)
        # Outside pytest's folder, which only its owner may read: the server runs as another user.
        self._data = Path(tempfile.mkdtemp(prefix="holdout-postgres-"))
        secret = self._data / "password"
        secret.write_text(password)
        shutil.chown(self._data, "postgres", "postgres")
        shutil.chown(secret, "postgres", "postgres")
        self._server("initdb", "--username=holdout", f"--pwfile={secret}", "--auth=scram-sha-256", self._data / "db")
        secret.unlink()
        self.start()

    @staticmethod
    def binaries() -> Path | None:
        """Return the folder of this machine's newest PostgreSQL, None without one."""
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        return found[-1].parent if found else None

    def _server(self, program: str, *arguments: str | Path) -> None:
        binaries = self.binaries()
        assert binaries is not None
        run("runuser", "-u", "postgres", "--", binaries / program, *arguments, cwd="/")

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._data}"
        log = self._data / "log"
        self._server("pg_ctl", "start", "-w", "-t", "300", "-D", self._data / "db", "-l", log, "-o", options)

    def stop(self) -> None:
        """Stop the server and cut its connections."""
        self._server("pg_ctl", "stop", "-w", "-t", "300", "-m", "fast", "-D", self._data / "db")

    @property
    def pid(self) -> int:
        """The server's first process, whose children serve the connections."""
        return int((self._data / "db" / "postmaster.pid").read_text().splitlines()[0])

    def url(self, database: str) -> str:
        """Return the address of a database, without the password."""
        return f"postgresql+psycopg://holdout@127.0.0.1:{self.port}/{database}"

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._data)


@contextmanager
def postgres(folder: Path, *databases: str) -> Iterator[Postgres]:
    """Yield a PostgreSQL server with ``databases``; skip the test if the packages are missing."""
    if Postgres.binaries() is None or os.getuid() != 0:
        pytest.skip("needs Debian's postgresql package, and root to start it as its own user")
    server = Postgres(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", str(server.password_file))
        try:
            with psycopg.connect(
                f"postgresql://holdout@127.0.0.1:{server.port}/postgres", autocommit=True
            ) as connection:
                for database in databases:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
            yield server
        finally:
            server.remove()


class MlflowServer:
    """The server of ``mlflow/serve.sh`` for ``folder``, started with further ``options``."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self._command = [ROOT / "mlflow" / "serve.sh", *options, folder, str(self.port)]
        self._log = folder / "mlflow.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                list(map(str, self._command)), stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 300
        while True:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            try:
                with urlopen(f"{self.url}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)

    def send(self, number: int) -> None:
        """Send a signal to the server and its workers."""
        assert self._process is not None, "it was not started"
        os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """Kill the server and its workers."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # it has ended; its log has the reason
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
