"""What ``holdout doctor`` finds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import draw_folder, small_search
from support.commands import holdout, holdout_here, plain, write_search

from search.cluster import doctor
from search.cluster.doctor import CheckResult, examine
from search.config.search_config import parse_config


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray takes ten seconds to start, and a test of its own."""
    quick = tuple(check for check in doctor.MACHINE_CHECKS if check is not doctor._ray)
    monkeypatch.setattr(doctor, "MACHINE_CHECKS", quick)


def found(findings: list[CheckResult], check: str) -> CheckResult:
    (finding,) = [entry for entry in findings if entry.check == check]
    return finding


def test_a_machine_is_looked_at() -> None:
    findings = json.loads(holdout("doctor", "--json").stdout)  # a process of its own: Ray keeps the first token it saw
    assert {"python", "torch", "faiss", "token", "ray"} == {entry["check"] for entry in findings}
    (ray,) = [entry for entry in findings if entry["check"] == "ray"]
    assert "on this machine: 1 nodes" in ray["found"]


@pytest.mark.usefixtures("without_ray")
def test_a_search_is_measured_against_it(search_file: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    findings = list(examine(parse_config(search_file()), tmp_path / "runs"))
    assert found(findings, "data").found == "folder: 6 classes train, 2 validate, 8 test"
    assert " for images in " in found(findings, "disk").found
    assert all(finding.state != "failed" for finding in findings)
    assert "all 3 trials are left to chance" in found(findings, "sampling").found
    assert found(findings, "sampling").state == "warning"
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("without_ray")
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


@pytest.mark.usefixtures("without_ray")
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
    assert test.mend.startswith("Mend them before the test")
