"""The files for clusters and servers, checked without a cloud and without containers; the Slurm script is run."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
import typer
import yaml
from packaging.specifiers import SpecifierSet
from support.commands import write_search
from support.services import ROOT, needs_ray
from support.small_search import small_search

from holdout.cli.main import program
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


# The files of examples/cluster: manifests, the image's commands, the Slurm script run.

FOLDER = ROOT / "examples" / "cluster"


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_a_manifest_agrees_with_itself_and_the_project(name: str) -> None:
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    cluster = content["spec"].get("rayClusterSpec", content["spec"])
    assert content["apiVersion"] == "ray.io/v1"
    pinned = re.search(r"^ray(?:\[.*\])?==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert cluster["rayVersion"] == pinned[1]
    assert cluster["authOptions"] == {"mode": "token"}
    pods = [cluster["headGroupSpec"]["template"]["spec"]]
    pods += [group["template"]["spec"] for group in cluster["workerGroupSpecs"]]
    for pod in pods:
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert container["image"] == "REGISTRY/holdout"
        assert container["resources"]["requests"] == container["resources"]["limits"]
    if content["kind"] == "RayJob":
        called, command, *arguments = content["spec"]["entrypoint"].split()
        found = typer.main.get_command(program()).commands[command]  # type: ignore[attr-defined]
        known = {option for parameter in found.params for option in parameter.opts}
        assert called == "holdout"
        assert {argument for argument in arguments if argument.startswith("-")} <= known


def test_the_image_copies_what_exists_and_runs_holdout() -> None:
    text = re.sub(r"\\\n\s*", "", (FOLDER / "Dockerfile").read_text())
    copied = {source for line in re.findall(r"^COPY (.*)", text, re.MULTILINE) for source in line.split()[:-1]}
    assert all((ROOT / source).exists() for source in copied)
    assert {"pyproject.toml", "constraints.txt", "holdout", "search", "spaces", "trainables"} <= copied
    assert {f"!{source}" for source in copied} <= {*(FOLDER / "Dockerfile.dockerignore").read_text().split()}
    requires = re.search(r'requires-python = "(.*)"', (ROOT / "pyproject.toml").read_text())
    base = re.search(r"^FROM python:(.*)-slim", text, re.MULTILINE)
    assert requires
    assert base
    assert base[1] in SpecifierSet(requires[1])
    assert '\nCMD ["holdout"' in text


def test_the_slurm_script_asks_for_what_it_uses() -> None:
    script = (FOLDER / "slurm.sh").read_text()
    options, _, code = script.partition("\nset ")
    assert re.findall(r"^#SBATCH --[a-z-]+(?:=\S+)?$", options, re.MULTILINE)
    assert "#SBATCH" not in code, "sbatch ignores options after the first command"
    assert "RAY_AUTH_MODE=token" in code
    assert "(umask 077; ray get-auth-token --generate" in code, "Ray alone lets everyone read the token"


SRUN = """#!/bin/bash
echo "srun $*" >> "$STUB_LOG"
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
SCONTROL = '#!/bin/bash\n[[ "$1 $2" == "show hostnames" ]] && printf "%s\\n" $3\n'


@needs_ray
@pytest.mark.cluster
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_slurm_script_searches_on_its_allocation(nodes: int, image_folder: Path, tmp_path: Path) -> None:
    """Slurm's two programs are stubs that run everything on this machine; Ray, its token and the search are real."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    changes = {"name": "slurm", "losses": ["pnp"], "search": {"trials": 2}, "stages": ["search"]}
    content = small_search(image_folder, **changes, resources={"engine": "ray"})
    file = write_search(tmp_path / "slurm.yaml", content)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))},
        "HOME": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "STUB_LOG": str(tmp_path / "said"),
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": " ".join([socket.gethostname()] * nodes),
        "SLURM_CPUS_PER_TASK": "1",
    }
    command = [FOLDER / "slurm.sh", file, "--runs", tmp_path / "runs"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Not all nodes" not in done.stderr
    summary = json.loads((tmp_path / "runs" / "slurm" / "summary.json").read_text())
    assert "pnp" in summary["losses"]
    steps = (tmp_path / "said").read_text().splitlines()
    assert len(steps) == min(nodes, 2)
    (head,) = (step for step in steps if "--head" in step)  # both are started at once, in either order
    assert "ray start" in head
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o077 == 0
    with socket.socket() as after:  # the script ends the cluster that it started
        after.settimeout(5)
        assert after.connect_ex((socket.gethostname(), 20000 + os.getpid() % 10000))
