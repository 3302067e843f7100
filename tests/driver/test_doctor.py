"""What ``holdout doctor`` finds."""

import re
from pathlib import Path

import pytest
from support.commands import json_of, write_search
from support.small_search import SearchFile

from search.config.search_config import parse_config
from search.driver import doctor
from search.engines.ray_engine import check_token
from spaces.contract import CheckResult


def found(findings: list[CheckResult], check: str) -> CheckResult:
    (finding,) = [entry for entry in findings if entry.check == check]
    return finding


def test_a_machine_and_a_search_are_examined(search_file: SearchFile, tmp_path: Path) -> None:
    """``test_engine_contract.py`` has Ray."""
    file = write_search(tmp_path / "x.yaml", search_file(losses=["pnp"], resources={"engine": "local"}))
    findings = json_of("doctor", file, "--runs", tmp_path / "runs")
    by_check = {entry["check"]: entry for entry in findings}
    assert [*by_check][:4] == ["python", "torch", "faiss", "tracking"]
    assert by_check["step"]["state"] == by_check["time"]["state"] == "ok"
    # six classes of ten images train in batches of 20, two validate
    assert re.search(r"pnp [\d.e-]+ s a step; an epoch has 3 and [\d.e-]+ s", by_check["step"]["found"])
    told = r"about [\d.]+ min with \d+ trials? at once if the cores are idle, and then the scoring of the test"
    assert re.fullmatch(told, by_check["time"]["found"])
    assert by_check["data"]["found"] == "folder: 6 classes train, 2 validate, 8 test"
    assert by_check["choice"]["found"] == (
        "2 classes validate: differences below about 8 points are noise between classes; the choice is confirmed on "
        "halves of all 8 training classes (4 points)"
    )
    assert f" GB free in {tmp_path}/runs" in by_check["disk"]["found"]
    assert "all 3 trials are drawn at random" in by_check["sampling"]["found"]
    assert not (tmp_path / "runs").exists()


def test_too_little_memory_is_found_with_advice(search_file: SearchFile, tmp_path: Path) -> None:
    many = parse_config(search_file(resources={"cpus_per_trial": 1e-5}))
    checks = doctor.SEARCH_CHECKS[:-1]  # without the measurement of a training, which takes ten seconds more
    memory = found([*doctor.examine(many, tmp_path / "runs", machine_checks=(), search_checks=checks)], "memory")
    assert memory.state == "failed"
    assert "search.max_concurrent" in memory.fix


def test_a_token_is_missing_on_a_cluster_or_read_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert not list(check_token())
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert found(list(check_token()), "token").state == "warning"
    token.write_text("0" * 64)
    token.chmod(0o644)
    assert found(list(check_token()), "token").fix == f"chmod 600 {token}"
    token.chmod(0o600)
    assert found(list(check_token()), "token").state == "ok"


def test_two_wheels_with_one_folder_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("faiss-cpu", "faiss-gpu"):
        record = tmp_path / f"{name.replace('-', '_')}-1.15.1.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.15.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    findings = [finding for check in doctor.MACHINE_CHECKS for finding in check()]
    assert found(findings, "faiss").found == "faiss-gpu and faiss-cpu share a folder; removing one breaks both"
    assert "`pip uninstall --yes faiss-gpu faiss-cpu && pip install faiss-gpu`" in found(findings, "faiss").fix
