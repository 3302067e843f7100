"""``holdout serve`` in a subprocess, and processes that end with their test."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def served(runs: Path, *more: str) -> Iterator[tuple[str, int, str]]:
    """Serve ``runs`` in a subprocess; yield its host, its port, and the address that it prints."""
    command = [sys.executable, "-m", "search", "serve", "--runs", str(runs), "--port", "0", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
        try:
            yield host, int(port), address
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str], *, group: bool = False) -> None:
    """Kill a process that a test started, or its process group."""
    with suppress(ProcessLookupError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        elif process.poll() is None:
            process.kill()
    process.wait()
