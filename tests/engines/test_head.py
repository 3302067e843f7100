"""A driver whose Ray dies says what follows: before Ray ends it where its head is gone, else as it ends by itself."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from support.services import needs_ray

from search.engines.ray_session import watched_head

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
