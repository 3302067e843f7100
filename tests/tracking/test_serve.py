"""``mlflow/serve.sh``: it speaks when MLflow answers, and at once where it cannot."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

from support.services import ROOT, free_port

SERVE = str(ROOT / "mlflow" / "serve.sh")
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def test_a_taken_port_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        begun = time.monotonic()
        done = subprocess.run([SERVE, tmp_path, str(port)], capture_output=True, text=True, check=False)
    assert time.monotonic() - begun < 5
    assert done.returncode == 2
    assert f"Port {port} is taken" in done.stderr
    assert "answers" not in done.stdout
    assert not list(tmp_path.iterdir())


def test_it_speaks_when_it_answers(tmp_path: Path) -> None:
    port = free_port()
    command = [SERVE, str(tmp_path), str(port)]
    environment = {**os.environ, "PATH": PATH}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    ) as server:
        try:
            assert server.stdout is not None
            said = next((line for line in server.stdout if "answers at" in line), None)
            assert said is not None, "it ended"
            assert f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning" in said
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
                assert answer.read() == b"OK"
        finally:
            os.killpg(server.pid, signal.SIGKILL)
