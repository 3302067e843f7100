"""A user's code neither ends the process nor leaves it changed."""

import asyncio
import io
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.odd_input import LAUNCHERS
from support.own_trainings import own_spec
from support.small_training import worker_of

from trainables.common.part_tables import load_part
from trainables.common.process import TIMERS, Exited, Setting, contained


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


def test_changes_in_any_order_are_put_back() -> None:
    before = state()
    for names in (sorted(CHANGES), sorted(CHANGES, reverse=True)):
        with contained():
            for name in names:
                CHANGES[name]()
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
