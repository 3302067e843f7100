"""The cores and the memory of an allocation, from drawn trees of control groups; the age of a GPU's driver."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings, strategies as st

from trainables.common.process import allotted_cpus, allotted_memory, driver_problem

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
HERE = len(os.sched_getaffinity(0))
LIMIT = st.none() | st.integers(1, 400)
"""Hundredths of a core, or megabytes."""


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content + "\n")


def tree(root: Path, version: int, limits: list[tuple[int | None, int | None]]) -> None:
    """Write the limits of a group and of those above it, from the top."""
    path = "/".join(["", *(f"group {level}:x" for level in range(len(limits) - 1))]) or "/"
    lines = f"0::{path}" if version == 2 else f"3:cpu,cpuacct:{path}\n7:memory:{path}"
    write(root / "proc/self", cgroup=lines)
    for level, (cores, memory) in enumerate(limits):
        below = "/".join(f"group {number}:x" for number in range(level))
        quota, bytes_ = "max" if cores is None else str(cores * 1000), "max" if memory is None else str(memory << 20)
        if version == 2:
            write(root / "sys/fs/cgroup" / below, cpu__max=f"{quota} 100000", memory__max=bytes_)
        else:
            none = "-1" if cores is None else quota
            write(root / "sys/fs/cgroup/cpu" / below, cpu__cfs_quota_us=none, cpu__cfs_period_us="100000")
            most = str(2**63 - 4096) if memory is None else bytes_
            write(root / "sys/fs/cgroup/memory" / below, memory__limit_in_bytes=most)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from((1, 2)), st.lists(st.tuples(LIMIT, LIMIT), min_size=1, max_size=4))
def test_the_tightest_limit_of_all_groups_above_holds(
    version: int, limits: list[tuple[int | None, int | None]]
) -> None:
    with TemporaryDirectory() as folder:
        tree(Path(folder), version, limits)
        cores = [cores // 100 for cores, _ in limits if cores is not None]
        memory = [memory << 20 for _, memory in limits if memory is not None]
        assert allotted_cpus(Path(folder)) == max(1, min([HERE, *cores]))
        assert allotted_memory(Path(folder)) == min([MACHINE, *memory])


def test_without_control_groups_it_is_the_machine(tmp_path: Path) -> None:
    assert (allotted_cpus(tmp_path), allotted_memory(tmp_path)) == (HERE, MACHINE)


def test_the_affinity_holds(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert allotted_cpus(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("name", ["SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"])
def test_slurms_job_holds(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "100")
    assert (allotted_cpus(tmp_path), allotted_memory(tmp_path)) == (1, 100 << 20)


def test_no_other_module_asks_for_the_machines_cores() -> None:
    top = Path(__file__).parents[3]
    files = [path for room in ("search", "trainables", "spaces", "holdout") for path in (top / room).rglob("*.py")]
    assert [path.name for path in files if "cpu_count" in path.read_text()] == []


# The driver of a GPU.

OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading "
    "and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to ..."
)


@pytest.mark.parametrize(("raised", "problem"), [
    (RuntimeError(OLD), "The NVIDIA driver on your system is too old (found version 11040)"),
    (RuntimeError("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU."), None),
    (AssertionError("Torch not compiled with CUDA enabled"), None),
])  # fmt: skip
def test_an_old_driver_is_told_in_the_words_of_pytorch(
    raised: Exception, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init() -> None:
        raise raised

    monkeypatch.setattr(torch.cuda, "init", init)
    assert driver_problem() == problem
