"""Starting Ray: what fails on a busy machine is tried again, and nothing of it stays."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from search.engines import ray_session as session
from search.engines.ray_session import ATTEMPTS, NoRay, ray_session


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
    deadline = time.monotonic() + 30
    while {"gcs_server", "raylet"} & {*children()}:
        assert time.monotonic() < deadline


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
