"""``mlflow/serve.sh``: it reports when MLflow responds, and errors at once."""

import base64
import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from support.mlflow_database import write_migrated
from support.services import ROOT, free_port

SERVE = str(ROOT / "mlflow" / "serve.sh")
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def refused(*arguments: str | Path, cwd: Path | None = None) -> str:
    """What the script says when it refuses its arguments."""
    done = subprocess.run([SERVE, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Port {port} is taken" in refused(tmp_path, str(port))
    assert not list(tmp_path.iterdir())


def test_a_password_that_all_could_read_is_refused_and_not_shown(tmp_path: Path) -> None:
    for address in ("postgresql://u:a/hush@h/x", "postgresql://h/x?password=hush"):
        said = refused("--database", address, tmp_path)
        assert "holds a password" in said
        assert "hush" not in said


def test_a_port_that_is_none_is_refused(tmp_path: Path) -> None:
    runs = tmp_path / 'it\'s a "folder" $(touch x)'
    runs.mkdir()
    for port in ("0", "70000", "5000;touch x", "-1"):
        sentence = f"PORT must be a whole number between 1 and 65535; it is {port}.\n"
        assert refused(runs, port, cwd=tmp_path) == sentence
    assert [path.name for path in tmp_path.rglob("*")] == [runs.name]


def test_the_options_are_explained_and_paths_to_be_quoted(tmp_path: Path) -> None:
    done = subprocess.run([SERVE, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Start the MLflow server")
    assert all(word in done.stdout for word in ("--database URL", "--host ADDRESS", "--auth", "RUNS"))
    assert "#" not in done.stdout
    assert "quote a path that has spaces" in refused(tmp_path, "5001", "more")


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
