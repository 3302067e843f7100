"""Whether an NVIDIA driver is new enough for PyTorch's CUDA."""

from pathlib import Path

import pytest

from trainables.machine import driver_problem, installed_driver

PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC: 11\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)  Sun Jul 27\n"


@pytest.mark.parametrize(("text", "version"), [(PROPRIETARY, "535.104.05"), (OPEN, "580.65.06"), ("nothing", None)])
def test_the_version_is_read_from_the_kernels_file(tmp_path: Path, text: str, version: str | None) -> None:
    (tmp_path / "version").write_text(text)
    assert installed_driver(tmp_path / "version") == version


def test_a_machine_without_the_driver_has_no_version(tmp_path: Path) -> None:
    assert installed_driver(tmp_path / "none") is None


@pytest.mark.parametrize(("cuda", "driver", "is_old"), [
    ("13.2", "535.104.05", True), ("13.2", "580.65.06", False), ("12.8", "525.60.13", False), ("12.8", "525.60", True),
    ("12.8", "470.57.02", True), (None, "470.57.02", False), ("13.2", None, False), ("14.0", "470.57.02", False),
])  # fmt: skip
def test_an_old_driver_is_named_with_the_oldest_that_will_do(cuda: str, driver: str, is_old: bool) -> None:
    problem = driver_problem(cuda, driver)
    assert (problem is not None) == is_old
    assert problem is None or (cuda in problem and f"this is {driver}" in problem)
