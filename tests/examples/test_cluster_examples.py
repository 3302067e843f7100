"""The files of examples/cluster: manifests, the image's commands, the Slurm script run."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from packaging.specifiers import SpecifierSet
from support.commands import write_search
from support.services import ROOT, needs_ray
from support.small_search import small_search

from search.cli.main import program

FOLDER = ROOT / "examples" / "cluster"
MANIFESTS = ("raycluster", "rayjob")


def manifest(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return content


def cluster_of(content: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = content["spec"]
    return spec.get("rayClusterSpec", spec)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_agrees_with_itself_and_the_project(name: str) -> None:
    content = manifest(name)
    cluster = cluster_of(content)
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


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (FOLDER / "Dockerfile").read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_copies_and_runs_what_exists() -> None:
    known = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "CMD"}
    assert {word for word, _ in instructions()} <= known
    copied = {source for word, rest in instructions() if word == "COPY" for source in rest.split()[:-1]}
    assert all((ROOT / source).exists() for source in copied)
    project = (ROOT / "pyproject.toml").read_text()
    assert {"pyproject.toml", "constraints.txt", "holdout", "search", "spaces", "trainables"} <= copied
    allowed = set((FOLDER / "Dockerfile.dockerignore").read_text().split())
    assert {f"!{source}" for source in copied} <= allowed
    (base,) = (rest for word, rest in instructions() if word == "FROM")
    requires = re.search(r'requires-python = "(.*)"', project)
    assert requires is not None
    assert base.removeprefix("python:").removesuffix("-slim") in SpecifierSet(requires[1])
    (command,) = (json.loads(rest) for word, rest in instructions() if word == "CMD")
    assert f'{command[0]} = "' in project.partition("[project.scripts]")[2]


def test_the_slurm_script_is_valid_and_asks_for_what_it_uses() -> None:
    script = FOLDER / "slurm.sh"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    lines = script.read_text().splitlines()
    options = [line for line in lines if line.startswith("#SBATCH ")]
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line) for line in options)
    code = next(index for index, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(lines.index(option) < code for option in options), "sbatch ignores options after the first command"
    assert "RAY_AUTH_MODE=token" in script.read_text()
    assert "(umask 077; ray get-auth-token --generate" in script.read_text(), "Ray alone lets everyone read the token"


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
