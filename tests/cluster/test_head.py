"""A driver whose Ray loses its head is told what follows, before Ray ends it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from search.cluster import head
from search.cluster.head import watched_head

LOSES_ITS_HEAD = """
import os, signal, subprocess, sys, time
from search.cli.output import set_up_logging
from search.cluster.session import ray_session

set_up_logging()
with ray_session():
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    for pid, parent, name in map(str.split, listed.splitlines()):
        if parent == str(os.getpid()) and name == "gcs_server":
            os.kill(int(pid), signal.SIGKILL)
    time.sleep(600)
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_head_that_goes_is_said_once_each_time_it_goes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(head, "EVERY_S", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        address = f"127.0.0.1:{port}"
        watched = watched_head(address)
        watched.__enter__()
        for _ in range(5):
            listening.accept()[0].close()
        assert not caplog.messages
    until(lambda: caplog.messages)
    time.sleep(0.2)
    assert len(caplog.messages) == 1
    assert f"Ray's head at {address} is gone." in caplog.messages[0]
    assert "the same command goes on" in caplog.messages[0]
    with socket.create_server(("127.0.0.1", port)) as listening:
        for _ in range(3):
            listening.accept()[0].close()
    until(lambda: len(caplog.messages) == 2)
    watched.__exit__(None, None, None)


@pytest.mark.cluster
def test_a_driver_is_told_before_ray_ends_it() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"RAY_gcs_rpc_server_reconnect_timeout_s": "15"}
    done = subprocess.run(
        [sys.executable, "-c", LOSES_ITS_HEAD],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "is gone. Unless it comes back, Ray ends this program" in said
    assert said.index("the same command goes on") < said.index("Failed to connect to GCS within")
