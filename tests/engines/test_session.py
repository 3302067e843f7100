"""Ray's session: a start that fails on a busy machine is tried again, and nothing of it stays; its loss is reported."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.services import needs_ray

from search.engines import ray_session as session
from search.engines.ray_session import ATTEMPTS, NoRay, ray_session, watched_head


class FakeRay:
    """Ray that does not start the first times."""

    __file__ = "/somewhere/ray/__init__.py"

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls: list[str] = []

    def init(self, **options: Any) -> None:
        self.calls.append(f"init {options['address']}")
        if self.failures:
            self.failures -= 1
            raise RuntimeError("Timed out waiting for the node.\nand more")

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address="127.0.0.1:1")

    def shutdown(self) -> None:
        self.calls.append("shutdown")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    def start(failures: int, address: str | None = None) -> FakeRay:
        ray = FakeRay(failures)
        monkeypatch.setattr(session, "import_ray", lambda: ray)
        if address:
            monkeypatch.setenv("RAY_ADDRESS", address)
        else:
            monkeypatch.delenv("RAY_ADDRESS", raising=False)
        return ray

    return start


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_start_that_failed_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray asks for its node at the end of a start, when all of its processes run."""
    session.import_ray()
    from ray._private import services

    running: list[str] = []

    def late(*_: Any) -> None:
        running.extend(children())
        raise TimeoutError("The node did not answer.")

    monkeypatch.setattr(services, "get_node", late)
    monkeypatch.setattr(session, "ATTEMPTS", 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(NoRay, match=r"The node did not answer\."), ray_session():
        pass
    assert {"gcs_server", "raylet"} <= {*running}
    until(lambda: not {"gcs_server", "raylet"} & {*children()})


def children() -> list[str]:
    """The programs of this process's children."""
    listed = subprocess.run(["ps", "-A", "-o", "ppid=,stat=,comm="], capture_output=True, text=True, check=True).stdout
    found = [line.split(maxsplit=2) for line in listed.splitlines()]
    return [name for parent, state, name in found if parent == str(os.getpid()) and not state.startswith("Z")]


def test_retries_of_the_start_are_bounded(started: Any) -> None:
    ray = started(failures=ATTEMPTS)
    with (
        pytest.raises(NoRay, match=r"Ray did not start at this machine \(Timed out .*\); run the same command"),
        ray_session(),
    ):
        pass
    assert ray.calls == [*["init local", "shutdown"] * ATTEMPTS, "shutdown"]


def test_a_given_cluster_is_tried_once(started: Any) -> None:
    ray = started(failures=1, address="10.0.0.1:6379")
    with pytest.raises(NoRay, match=r"at 10\.0\.0\.1:6379 .* see that a cluster runs there"), ray_session():
        pass
    assert ray.calls == ["init 10.0.0.1:6379", "shutdown"]


def test_a_sigterm_during_the_start_is_handled(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray sets a handler of its own, which would end the process without a word."""
    ray = started(failures=0)
    monkeypatch.setattr(ray, "init", lambda **options: sys.exit(signal.SIGTERM))
    ours = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), ray_session():
            pass
    finally:
        signal.signal(signal.SIGTERM, ours)
    assert ray.calls == ["shutdown"]


# A driver whose Ray dies says what follows: before Ray ends it where its head is gone, else as it ends by itself.

LOSES = """
import os, signal, subprocess, sys, threading, time
from search.cli.output import set_up_logging
from search.engines.ray_engine import RayEngine
from search.config.sections import ResourcesSection

def train(seconds):
    time.sleep(seconds)

def kill():
    time.sleep(5)
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    for pid, parent, name in map(str.split, listed.splitlines()):
        if parent == str(os.getpid()) and name == sys.argv[1]:
            os.kill(int(pid), signal.SIGKILL)

set_up_logging()
engine = RayEngine(ResourcesSection())
with engine.session():
    threading.Thread(target=kill).start()
    engine.map(train, [600])
"""


def loses(program: str) -> tuple[int, str]:
    """The exit code of a driver that waits for a worker and loses one of Ray's programs, and what it says."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"RAY_gcs_rpc_server_reconnect_timeout_s": "15"}
    done = subprocess.run(
        [sys.executable, "-c", LOSES, program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, " ".join(done.stderr.split())


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_loss_of_the_head_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        address = f"127.0.0.1:{port}"
        watched = watched_head(address, every_s=0.02)
        watched.__enter__()
        for _ in range(5):
            listening.accept()[0].close()
        assert not caplog.messages
    until(lambda: caplog.messages)
    time.sleep(0.2)
    assert len(caplog.messages) == 1
    assert f"Ray's head at {address} is gone." in caplog.messages[0]
    assert "run the same command again to resume" in caplog.messages[0]
    with socket.create_server(("127.0.0.1", port)) as listening:
        for _ in range(3):
            listening.accept()[0].close()
    until(lambda: len(caplog.messages) == 2)
    watched.__exit__(None, None, None)


@needs_ray
@pytest.mark.cluster
def test_the_loss_of_the_head_is_reported_in_time() -> None:
    code, said = loses("gcs_server")
    assert code == 1
    assert "is gone. Unless it comes back, Ray ends this program" in said
    assert said.index("run the same command again to resume") < said.index("Failed to connect to GCS within")


@needs_ray
@pytest.mark.cluster
def test_a_driver_ends_when_its_raylet_dies() -> None:
    code, said = loses("raylet")
    assert code == 1
    assert "Ray has died on this machine" in said
    assert "run the same command again to resume" in said
