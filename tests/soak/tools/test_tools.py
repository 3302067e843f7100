"""Each tool injects its fault and repairs it."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.services import run
from support.small_disk import small_disk
from support.stores import ftp_store

from soak.tools import clock, network
from soak.tools.clock import Clock
from soak.tools.network import island
from soak.tools.processes import RUN, Process, descendants, end, marked
from soak.tools.store import HALF, LAG_S, LAGS, REFUSES, FaultyHandler
from trainables.files import as_path

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = [sys.executable, "-c", f"import subprocess; subprocess.run({SLEEPS!r})"]


def skip_if(reason: str | None) -> None:
    if reason:
        pytest.skip(reason)


def test_processes_are_known_by_their_mark_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN, "soak-of-this-test")
    parent = subprocess.Popen(PARENT)
    other = subprocess.Popen(SLEEPS, env={**os.environ, RUN: "another"})
    try:
        while len(found := marked(RUN, "soak-of-this-test")) < 2:
            time.sleep(0.05)
        (child,) = descendants(parent.pid)
        assert {process.pid for process in found} == {parent.pid, child.pid}
        end(found)
        assert parent.wait() == -signal.SIGKILL
        while marked(RUN, "soak-of-this-test"):
            time.sleep(0.05)
        assert other.poll() is None
        child.send(signal.SIGKILL)  # who is dead gets no signal, and nobody is told
    finally:
        end([Process(other.pid, ""), Process(parent.pid, "")])
        other.wait()
        parent.wait()


def test_a_full_disk_takes_not_one_byte_until_it_is_emptied(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", size=1_000_000) as small:
        small.fill()
        with pytest.raises(OSError, match="No space left") as full:
            (small.path / "file").write_bytes(b"x")
        assert full.value.errno == errno.ENOSPC
        small.clear()
        (small.path / "file").write_bytes(b"x" * 500_000)
    assert not list((tmp_path / "small").iterdir())


def test_a_store_refuses_lags_and_gives_half(tmp_path: Path) -> None:
    with ftp_store(tmp_path / "store", kind=FaultyHandler) as url:
        file = as_path(f"{url}/file")
        file.write_bytes(b"0123456789")
        FaultyHandler.fault = REFUSES
        with pytest.raises(Exception, match="out of order"):
            file.write_bytes(b"other")
        FaultyHandler.fault = HALF
        assert as_path(f"{url}/file").read_bytes() == b"01234"
        FaultyHandler.fault = LAGS
        began = time.monotonic()
        file.write_bytes(b"other")
        assert time.monotonic() - began >= LAG_S
        FaultyHandler.fault = None
        assert as_path(f"{url}/file").read_bytes() == b"other"


def test_a_process_sees_another_clock_until_it_is_right_again(tmp_path: Path) -> None:
    skip_if(clock.why_not())
    other = Clock(tmp_path / "clock")
    program = "import time\nfor _ in iter(input, 'end'): time.sleep(0.1); print(time.time(), flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **other.environment},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ahead() -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline()) - time.time()

    try:
        assert abs(ahead()) < 60
        other.jump(86_400)
        assert abs(ahead() - 86_400) < 60
        other.jump(-7200)
        assert abs(ahead() + 7200) < 60
        other.right()
        assert abs(ahead()) < 60
    finally:
        process.communicate("end\n")


def test_a_pulled_cable_cuts_a_network_off_until_it_is_plugged_in() -> None:
    skip_if(network.why_not())
    with island() as cut_off, socket.create_server((cut_off.here, 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket; socket.create_connection(({cut_off.here!r}, {port}), timeout=2).close()"
        connect = ["ip", "netns", "exec", cut_off.name, sys.executable, "-c", program]
        assert subprocess.run(connect, check=False).returncode == 0
        cut_off.cut()
        assert subprocess.run(connect, check=False, stderr=subprocess.DEVNULL).returncode == 1
        cut_off.fix()
        while subprocess.run(connect, check=False, stderr=subprocess.DEVNULL).returncode:
            time.sleep(0.2)  # the two ends have to find each other again
        assert cut_off.there in run("ip", "-n", cut_off.name, "addr")
    assert cut_off.name not in run("ip", "netns", "list")
