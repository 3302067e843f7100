"""What ``holdout doctor`` finds."""

import re
from pathlib import Path

import pytest
from support.commands import json_of, write_search
from support.small_search import SearchFile, draw_folder, small_search

from search.config.search_config import SearchConfig, parse_config
from search.driver import doctor
from search.driver.doctor import examine
from search.engines.ray_engine import check_token
from spaces.contract import CheckResult


def examined(config: SearchConfig, folder: Path) -> list[CheckResult]:
    """Return the findings about a search without the measurement of a training, which takes ten seconds more."""
    return list(examine(config, folder / "runs", machine_checks=(), search_checks=doctor.SEARCH_CHECKS[:-1]))


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


def test_two_wheels_with_one_folder_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("faiss-cpu", "faiss-gpu"):
        record = tmp_path / f"{name.replace('-', '_')}-1.15.1.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.15.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    findings = [finding for check in doctor.MACHINE_CHECKS for finding in check()]
    assert found(findings, "faiss").found == "faiss-gpu and faiss-cpu share a folder; removing one breaks both"
    assert "`pip uninstall --yes faiss-gpu faiss-cpu && pip install faiss-gpu`" in found(findings, "faiss").fix


@pytest.mark.slow
def test_a_training_that_fails_is_found(search_file: SearchFile, tmp_path: Path) -> None:
    config = parse_config(search_file(losses=["support.own_parts:Raising"]))
    findings = list(examine(config, tmp_path / "runs"))
    assert [finding.check for finding in findings if finding.state == "failed"] == ["step"]
    assert "IndexError: out of sorts" in found(findings, "step").found


def test_too_little_memory_is_found_with_advice(search_file: SearchFile, tmp_path: Path) -> None:
    many = search_file(resources={"cpus_per_trial": 1e-5})
    memory = found(examined(parse_config(many), tmp_path), "memory")
    assert memory.state == "failed"
    assert "search.max_concurrent" in memory.fix


def test_a_precision_that_the_cpu_emulates_is_told_of(
    search_file: SearchFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = search_file()["training"] | {"precision": "bfloat16"}
    for capability, told in (("AVX2", ["Set training.precision: auto."]), ("AVX512", []), ("DEFAULT", [])):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda capability=capability: capability)
        findings = examined(parse_config(search_file(training=training)), tmp_path)
        assert [each.fix for each in findings if each.check == "precision"] == told


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


def test_damaged_images_are_told_of_before_a_search(tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", images=5)
    (root / "class-12" / "01.png").write_bytes(b"")
    findings = examined(parse_config(small_search(root)), tmp_path)
    training, test = found(findings, "training images"), found(findings, "test images")
    assert (training.state, training.found) == ("ok", "none of 40 looks damaged; their contents were not read")
    assert (test.state, test.found) == (
        "warning",
        "1 of 40 images of test classes looks damaged: class-12/01.png (the file is empty)",
    )
    assert test.fix.startswith("Repair them before the test")
