"""What ``holdout doctor`` finds."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import draw_folder, small_search
from support.commands import holdout, holdout_here, plain, write_search
from support.services import ray_nodes

from search.config.search_config import parse_config
from search.config.sections import ResourcesSection
from search.driver import doctor
from search.driver.doctor import CheckResult, examine
from search.engines.capacity import mps_daemon
from search.engines.ray_engine import check_ray
from trainables.spec import DeviceMemory


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the start of Ray, which takes ten seconds and has a test."""
    quick = tuple(check for check in doctor.MACHINE_CHECKS if check is not check_ray)
    monkeypatch.setattr(doctor, "MACHINE_CHECKS", quick)


@pytest.fixture
def untrained(without_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is trained either, which takes ten more."""
    quick = tuple(check for check in doctor.SEARCH_CHECKS if check is not doctor._cost)
    monkeypatch.setattr(doctor, "SEARCH_CHECKS", quick)


def found(findings: list[CheckResult], check: str) -> CheckResult:
    (finding,) = [entry for entry in findings if entry.check == check]
    return finding


def test_a_machine_is_looked_at() -> None:
    findings = json.loads(holdout("doctor", "--json").stdout)  # a process of its own: Ray keeps the first token it saw
    assert {"python", "torch", "faiss", "token", "ray"} == {entry["check"] for entry in findings}
    (ray,) = [entry for entry in findings if entry["check"] == "ray"]
    assert "on this machine: 1 nodes" in ray["found"]


@pytest.mark.usefixtures("untrained")
def test_a_search_is_looked_at(search_file: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    findings = list(examine(parse_config(search_file()), tmp_path / "runs"))
    assert found(findings, "data").found == "folder: 6 classes train, 2 validate, 8 test"
    assert " for images in " in found(findings, "disk").found
    assert all(finding.state != "failed" for finding in findings)
    assert "all 3 trials are random" in found(findings, "sampling").found
    assert found(findings, "sampling").state == "warning"
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("untrained")
def test_what_is_missing_is_said_with_its_mend(
    search_file: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_search(tmp_path / "x.yaml", search_file(search={"storage": "postgresql://nobody@127.0.0.1:9/x"}))
    said = plain(holdout_here("doctor", file, "--runs", tmp_path / "runs", code=1).stdout)
    assert "search.storage: postgresql://nobody@127.0.0.1:9/x does not answer" in said
    monkeypatch.setattr(doctor, "PROCESS_BYTES", 10**15)
    memory = found(list(examine(parse_config(search_file()), tmp_path / "runs")), "memory")
    assert memory.state == "failed"
    assert "search.max_concurrent" in memory.mend


@pytest.mark.usefixtures("without_ray")
def test_a_token_that_others_may_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("0" * 64)
    token.chmod(0o644)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    assert found(list(examine(None, tmp_path)), "token").mend == f"chmod 600 {token}"
    token.chmod(0o600)
    assert found(list(examine(None, tmp_path)), "token").state == "ok"


@pytest.mark.usefixtures("untrained")
def test_damaged_images_are_told_of_before_a_search(tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", images=5)
    (root / "class-12" / "01.png").write_bytes(b"")
    findings = list(examine(parse_config(small_search(root)), tmp_path / "runs"))
    training, test = found(findings, "training images"), found(findings, "test images")
    assert (training.state, training.found) == ("ok", "none of 40 looks damaged, and none was decoded")
    assert (test.state, test.found) == (
        "warning",
        "1 of 40 images of test classes looks damaged: class-12/01.png (the file is empty)",
    )
    assert test.mend.startswith("Repair them before the test")


@pytest.mark.usefixtures("without_ray")
def test_what_a_search_takes_is_measured_before_it_begins(
    search_file: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    findings = list(examine(parse_config(search_file()), tmp_path / "runs"))
    step, took = found(findings, "step"), found(findings, "time")
    assert step.state == took.state == "ok"
    # six classes of ten images train in batches of 20, two validate
    assert re.search(
        r"proxy_anchor [\d.e-]+ s a step, pnp [\d.e-]+ s a step; an epoch has 3 and [\d.e-]+ s", step.found
    )
    assert re.fullmatch(r"about [\d.]+ min with \d+ trials at once, and then the scoring of the test", took.found)


@pytest.mark.usefixtures("without_ray")
def test_a_training_that_would_fail_is_told_of(search_file: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    findings = list(examine(parse_config(search_file(losses=["support.own_parts:Raising"])), tmp_path / "runs"))
    assert found(findings, "step").state == "failed"
    assert "IndexError: out of sorts" in found(findings, "step").found


@pytest.mark.cluster
def test_the_trials_of_the_cluster_are_counted(
    search_file: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examined(cpus: int, code: int, **resources: float) -> dict[str, dict[str, str]]:
        file = write_search(tmp_path / "x.yaml", search_file(losses=["proxy_anchor"], resources=resources))
        with ray_nodes(tmp_path / "auth_token", cpus=cpus) as nodes:
            monkeypatch.setenv("RAY_ADDRESS", nodes.gcs_address)
            done = holdout("doctor", file, "--runs", tmp_path / "runs", "--json", code=code)
        return {entry["check"]: entry for entry in json.loads(done.stdout)}

    assert "with 10 trials at once" in examined(5, 0, stack=2)["time"]["found"]
    small = examined(1, 1, cpus_per_trial=2)
    assert "a trial asks for 2 CPUs and no machine of the cluster has more than 1" in small["cluster"]["mend"]
    assert "time" not in small


def test_mps_is_looked_for(tmp_path: Path) -> None:
    assert "is not installed" in mps_daemon({"PATH": str(tmp_path)}, tmp_path / "pipes")[0]
    program = tmp_path / "nvidia-cuda-mps-control"
    program.touch(mode=0o755)
    environment = {"PATH": str(tmp_path), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}
    said, mend = mps_daemon(environment, tmp_path / "pipes")
    assert "take turns" in said
    assert mend.endswith("run `nvidia-cuda-mps-control -d`.")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "control").touch()
    environment["CUDA_MPS_PIPE_DIRECTORY"] = str(tmp_path / "elsewhere")
    said, mend = mps_daemon(environment, tmp_path / "pipes")
    assert said.endswith("elsewhere, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25")
    assert not mend


def test_a_share_of_a_gpu_is_judged_by_what_a_step_took() -> None:
    memory = DeviceMemory(peak=5_400_000_000, total=24_000_000_000)
    fits, packed = (doctor._share(ResourcesSection(gpus_per_trial=share), memory) for share in (0.25, 0.1))
    assert (fits.state, fits.found) == ("ok", "a trial takes 6.0 GB of 24.0 GB, so 4 fit on a GPU")
    assert packed.state == "failed"
    assert packed.mend.endswith("set it to 0.25.")
    stack = doctor._share(ResourcesSection(gpus_per_trial=0.25, stack=8), memory)
    assert stack.found == "a stack of 8 takes 6.0 GB of 24.0 GB, so 4 fit on a GPU"


@pytest.mark.usefixtures("without_ray")
def test_a_stack_is_measured_as_a_whole(search_file: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    """Whose members are so many trials at once."""
    file = search_file(resources={"stack": 3, "cpus_per_trial": os.cpu_count()}, losses=["proxy_anchor"])
    took = found(list(examine(parse_config(file), tmp_path / "runs")), "time")
    assert "with 3 trials at once" in took.found
