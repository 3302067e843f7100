"""The cluster's and the servers' files, checked without a cloud and without containers."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from support.services import ROOT, run

from search.engines.ray_session import import_ray

CLUSTER = yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())
COMPOSE = yaml.safe_load((ROOT / "mlflow" / "compose.yaml").read_text())
PAGE = (ROOT / "CLUSTER.md").read_text()


def test_ray_accepts_the_cluster_file() -> None:
    import_ray()
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(CLUSTER)
    validate_config(config)
    assert config["head_setup_commands"][0] == "cd ~/holdout && make setup"


def test_no_port_is_open_to_the_world_and_every_start_has_the_token() -> None:
    """Ray makes a security group that opens SSH to everybody, unless every node type names its own."""
    for node in CLUSTER["available_node_types"].values():
        assert node["node_config"]["SecurityGroupIds"]
    (start,) = CLUSTER["head_start_ray_commands"]
    assert "--dashboard-host=127.0.0.1" in start
    commands = [start, *CLUSTER["worker_start_ray_commands"]]
    commands += [line for line in PAGE.splitlines() if line.startswith("cd ") and "ray start" in line]
    assert len(commands) == 4
    for command in commands:
        assert "RAY_AUTH_MODE=token ray start" in command
        assert command.startswith("cd ~/holdout && . .venv/bin/activate && ")
    assert CLUSTER["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"


def test_commands_are_shell_and_those_of_the_documentation() -> None:
    for command in [*CLUSTER["initialization_commands"], *CLUSTER["setup_commands"]]:
        subprocess.run(["bash", "-n", "-c", command], check=True)
    assert all(f"\n{command}\n" in PAGE for command in CLUSTER["setup_commands"])


def test_the_servers_listen_on_localhost_only_and_the_compose_file_has_no_password() -> None:
    postgres, mlflow = COMPOSE["services"]["postgres"], COMPOSE["services"]["mlflow"]
    assert "ports" not in postgres
    assert [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", port).rpartition(":")[0] for port in mlflow["ports"]] == [
        "127.0.0.1:5000"
    ]
    assert COMPOSE["secrets"] == {"password": {"file": "./secrets/password"}}
    assert postgres["environment"]["POSTGRES_PASSWORD_FILE"] == "/run/secrets/password"
    assert "://holdout@postgres/" in str(mlflow)
    ignored = subprocess.run(["git", "check-ignore", "mlflow/secrets/password"], cwd=ROOT, check=False)
    assert ignored.returncode == 0


def test_the_containers_run_our_versions() -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    build = COMPOSE["services"]["mlflow"]["build"]["dockerfile_inline"]
    assert f"mlflow[auth]=={pins['mlflow']}" in build
    assert f"psycopg[binary]=={pins['psycopg']}" in build


def test_compose_understands_the_file() -> None:
    if not shutil.which("docker") or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip("no `docker compose` on this machine")
    command = ["docker", "compose", "--file", str(ROOT / "mlflow" / "compose.yaml"), "config", "--quiet"]
    subprocess.run(command, check=True)


@pytest.mark.cluster
def test_a_new_node_sets_itself_up(tmp_path: Path) -> None:
    """In a clean folder."""
    archive = tmp_path / "files.tar"
    run("git", "archive", "--output", archive, "HEAD", cwd=ROOT)
    with tarfile.open(archive) as files:
        files.extractall(tmp_path / "holdout", filter="data")
    # Another home folder, and with it no trace of this checkout; only the downloads are kept.
    cache = run(ROOT / ".venv" / "bin" / "uv", "cache", "dir").strip()
    environment = {**os.environ, "HOME": str(tmp_path), "UV_CACHE_DIR": cache}
    environment.pop("PYTHONPATH", None)
    for command in CLUSTER["setup_commands"]:
        subprocess.run(["bash", "-c", command], env=environment, check=True, timeout=600)
    there = (
        'cd ~/holdout && . .venv/bin/activate && python -c "import search; print(search.__file__)" && holdout losses'
    )
    said = run("bash", "-c", there, env=environment)
    assert said.startswith(str(tmp_path / "holdout" / "search"))
    assert "proxy_anchor" in said
    shutil.rmtree(tmp_path / "holdout")  # gigabytes, which pytest would keep
