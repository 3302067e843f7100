"""A user's code neither ends the process nor leaves it changed; the cores and the memory that a process may use."""

import asyncio
import io
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.odd_input import LAUNCHERS
from support.own_trainings import own_spec
from support.small_training import worker_of

from trainables.common.part_tables import load_part
from trainables.common.process import TIMERS, Exited, Setting, allotted_cpus, allotted_memory, contained


def enter_removed_folder() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)


CHANGES: dict[str, Callable[[], Any]] = {
    "folder": lambda: os.chdir("/"),
    "removed folder": enter_removed_folder,
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "device": lambda: torch.set_default_device("meta"),
    "gradients": lambda: torch.set_grad_enabled(False),
    "threads": lambda: torch.set_num_threads(3),
    "deterministic": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "handler": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "python": random.random,
    "numpy": np.random.rand,
    "torch": lambda: torch.rand(1),
}


def state() -> list[Any]:
    return [
        Path("/proc/self/cwd").readlink(), signal.getsignal(signal.SIGTERM),
        random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist(),
        torch.is_grad_enabled(), torch.get_num_threads(), torch.get_default_dtype(), torch.get_default_device(),
        torch.get_deterministic_debug_mode(),
    ]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_put_back_and_seen_again(change: Callable[[], Any]) -> None:
    before, kept = state(), list[Setting]()
    with contained(), contained(kept):
        change()
        changed = state()
    assert state() == before != changed
    with contained(kept):
        assert change is enter_removed_folder or state() == changed
    assert state() == before


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_stream_that_is_closed_or_replaced_is_put_back(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, kept, own = getattr(sys, name), list[Setting](), io.StringIO()
    with contained(), contained(kept):
        before.close()
        setattr(sys, name, own)
    assert getattr(sys, name) is before
    with contained(kept):
        assert getattr(sys, name) is own
        print("seen by the code", file=getattr(sys, name))
        own.close()
    with contained(), before:
        pass
    print("seen", file=getattr(sys, name))
    assert getattr(capsys.readouterr(), name[3:]) == "seen\n"


@pytest.mark.parametrize("number", TIMERS)
def test_a_timer_ends_with_its_handler(number: signal.Signals) -> None:
    with contained():
        signal.signal(number, lambda *_: None)
        signal.setitimer(TIMERS[number], 3600)
    assert signal.getitimer(TIMERS[number]) == (0, 0)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
def test_an_exit_is_an_error(error: BaseException) -> None:
    with pytest.raises(Exited, match="the code ends the process"), contained():
        raise error


def test_an_exit_by_the_process_itself_passes() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    try:
        with pytest.raises(SystemExit, match="7"), contained():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    with pytest.raises(KeyboardInterrupt), contained():
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["ExitsAfterEpoch", "exits_in_function"])
def test_the_failure_names_the_lines(name: str, tmp_path: Path) -> None:
    worker = worker_of(own_spec(tmp_path, f"support.own_trainings:{name}"))
    assert len(worker.step().records) == 1
    assert os.getcwd() != "/"
    failure = worker.step()
    assert failure.cause == "CODE_ERROR"
    assert "(SystemExit: 3)" in failure.reason
    assert "own_trainings.py, line" in failure.reason
    assert ": sys.exit(3)" in failure.reason


def test_an_imported_module_leaves_torch_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rude.py").write_text("import os, torch\ntorch.set_default_dtype(torch.float64)\nos.chdir('/')\nX = 1")
    monkeypatch.syspath_prepend(tmp_path)
    before = state()
    assert load_part("rude:X", kind="part") == 1
    assert state() == before


def test_a_training_is_one_process_whatever_launched_it(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = {name: value for variables in LAUNCHERS.values() for name, value in variables.items()}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    kept = list[Setting]()
    with contained(kept):
        assert not launched.keys() & os.environ.keys()
        assert os.environ["SLURM_CPUS_PER_TASK"] == "8"
        os.environ["RANK"] = "0"  # the code's own
    with contained(kept):
        assert os.environ.pop("RANK") == "0"


# The cores and the memory of an allocation, from drawn trees of control groups.

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
