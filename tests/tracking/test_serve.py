"""``mlflow/serve.sh``: it reports when MLflow responds, and errors at once."""

import base64
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.mlflow_database import write_migrated
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


@pytest.mark.parametrize("address", ["postgresql://u:a/hush@h/x", "postgresql://h/x?password=hush"])
def test_a_password_that_all_could_read_is_refused_and_not_shown(address: str, tmp_path: Path) -> None:
    done = subprocess.run([SERVE, "--database", address, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "holds a password" in done.stderr
    assert "hush" not in done.stderr


@pytest.mark.parametrize("port", ["0", "70000", "5000;touch x", "-1"])
def test_a_port_that_is_none_is_refused(port: str, tmp_path: Path) -> None:
    runs = tmp_path / 'it\'s a "folder" $(touch x)'
    runs.mkdir()
    done = subprocess.run([SERVE, runs, port], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"PORT must be a whole number between 1 and 65535; it is {port}.\n"
    assert [path.name for path in tmp_path.rglob("*")] == [runs.name]


def test_the_options_are_explained_and_paths_to_be_quoted(tmp_path: Path) -> None:
    done = subprocess.run([SERVE, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Start the MLflow server")
    assert all(word in done.stdout for word in ("--database URL", "--host ADDRESS", "--auth", "RUNS"))
    assert "#" not in done.stdout
    done = subprocess.run([SERVE, tmp_path, "5001", "more"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "quote a path that has spaces" in done.stderr


def status(port: int, path: str, host: str, **headers: str) -> int:
    asking = http.client.HTTPConnection("127.0.0.2", port, timeout=60)
    asking.request("GET", path, headers={"Host": host, "Connection": "close", **headers})
    return asking.getresponse().status


def test_only_users_get_in_and_only_by_names_that_are_its_own(tmp_path: Path) -> None:
    port = free_port()
    write_migrated(tmp_path / "mlflow.db")
    environment = {
        **os.environ,
        "PATH": PATH,
        "HOME": str(tmp_path),
        "MLFLOW_AUTH_ADMIN_PASSWORD": "long-enough-to-be-one",
    }
    command = [SERVE, "--auth", "--host", "127.0.0.2", str(tmp_path), str(port)]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet, text=True, env=environment, start_new_session=True) as server:
        try:
            assert server.stdout is not None
            assert any("answers at" in line for line in server.stdout)
            experiments, own = "/api/2.0/mlflow/experiments/search?max_results=1", f"127.0.0.2:{port}"
            known = base64.b64encode(b"admin:long-enough-to-be-one").decode()
            wrong = base64.b64encode(b"admin:password1234").decode()
            assert status(port, experiments, own, Authorization=f"Basic {known}") == 200
            assert status(port, experiments, f"localhost:{port}", Authorization=f"Basic {known}") == 200
            for host in ("evil.example", "10.0.0.1.evil.example", f"10.0.0.1.evil.example:{port}"):
                assert status(port, experiments, host, Authorization=f"Basic {known}") == 403
            for path in (experiments, "/", "/get-artifact?path=x&run_uuid=x", "/graphql", "/version", "/signup"):
                assert status(port, path, own) == 401
                assert status(port, path, own, Authorization=f"Basic {wrong}") == 401
            assert (tmp_path / "mlflow_users.db").stat().st_mode & 0o777 == 0o600
            assert (tmp_path / ".config" / "holdout" / "mlflow_secret_key").stat().st_mode & 0o777 == 0o600
        finally:
            os.killpg(server.pid, signal.SIGKILL)
