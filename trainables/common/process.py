"""The process around a user's code, and the cores and memory that it may use.

What the code changes in the process is put back, and its exit is an error. The environment and ``sys.path`` stay
changed: modules set them for the libraries that they import. What a launcher of several processes put into the
environment is removed.
"""

import os
import random
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

_LAUNCHED = re.compile(
    r"(LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(LOCAL_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)|"
    r"(TORCHELASTIC|ACCELERATE|OMPI_COMM_WORLD|PMIX?|MV2_COMM_WORLD|MPI|FLUX|JSM_NAMESPACE)_.*|"
    r"SLURM_(NTASKS|NPROCS|PROCID|LOCALID|NODEID|STEP|TASKS|NNODES|JOB_NUM_NODES|GTIDS).*"
)
"""The variables from which libraries take a process for one of several that train together: of torchrun, Slurm, MPI."""

TIMERS = {
    signal.SIGALRM: signal.ITIMER_REAL,
    signal.SIGVTALRM: signal.ITIMER_VIRTUAL,
    signal.SIGPROF: signal.ITIMER_PROF,
}

Setting = Callable[[], object]
"""A function that puts a setting of the process back."""


class Exited(RuntimeError):
    """An attempt of a user's code to end the process."""


@contextmanager
def contained(kept: list[Setting] | None = None) -> Iterator[None]:
    """Put back what the code inside changes in this process.

    Args:
        kept: the settings that the code had last, which are set first and replaced in the end; empty at the beginning.

    Raises:
        Exited: the code would end the process, for example by ``sys.exit``. An exit or interrupt that a signal handler
            from before raises passes.
    """
    if not kept:  # later on they are the code's own
        for name in filter(_LAUNCHED.fullmatch, list(os.environ)):
            del os.environ[name]  # a training is one process
    handlers = _handlers()
    ours = _settings(handlers)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.close = stream.flush  # not the code's to close
    for put_back in kept or ():
        put_back()
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        codes = {getattr(handler, "__code__", None) for handler in handlers.values()}
        if any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise
        exited = Exited(f"the code ends the process ({type(error).__name__}: {error}); raise an exception instead")
        exited.__notes__ = getattr(error, "__notes__", [])
        raise exited from error
    finally:
        if kept is not None:
            kept[:] = _settings(_handlers())
        for put_back in ours:
            put_back()


def _settings(handlers: dict[signal.Signals, Any]) -> list[Setting]:
    found: list[Setting] = [
        partial(_enter, _folder()),
        partial(_handle, handlers),
        partial(_write_to, sys.stdout, sys.stderr),
        partial(random.setstate, random.getstate()),
    ]
    if "numpy" in sys.modules:
        numpy = import_module("numpy")
        found.append(partial(numpy.random.set_state, numpy.random.get_state()))
    if "torch" not in sys.modules:
        return [*found, _set_torch]
    torch = import_module("torch")
    kept = torch.get_default_dtype(), torch.get_default_device(), torch.get_deterministic_debug_mode()
    return [
        *found,
        partial(torch.set_rng_state, torch.get_rng_state()),
        partial(torch.set_grad_enabled, torch.is_grad_enabled()),
        partial(torch.set_num_threads, torch.get_num_threads()),
        partial(_set_torch, *kept),
    ]


def _handlers() -> dict[signal.Signals, Any]:
    return {number: signal.getsignal(number) for number in signal.Signals}


def _folder() -> str | None:
    with suppress(FileNotFoundError):  # it was removed
        return os.getcwd()
    return None


def _enter(folder: str | None) -> None:
    if folder is not None:
        with suppress(FileNotFoundError):
            os.chdir(folder)


def _write_to(*streams: Any) -> None:
    sys.stdout, sys.stderr = streams
    for stream in filter(None, streams):
        vars(stream).pop("close", None)  # set by contained


def _handle(handlers: dict[signal.Signals, Any]) -> None:
    if threading.current_thread() is threading.main_thread():  # no other can set them
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                if number in TIMERS:
                    signal.setitimer(TIMERS[number], 0)  # the system's own answer to its signal ends the process
                signal.signal(number, handler)


def _set_torch(dtype: Any = None, device: Any = None, deterministic: int = 0) -> None:
    """Set what torch begins with, or what is given."""
    if "torch" in sys.modules:
        torch = import_module("torch")
        torch.set_default_dtype(dtype or torch.float32)
        if torch.get_default_device() != (device or torch.device("cpu")):  # `with torch.device(…)` may be in force
            torch.set_default_device(device if device and device.type != "cpu" else None)
        if torch.get_deterministic_debug_mode() != deterministic:
            torch.set_deterministic_debug_mode(deterministic)


# The cores and the memory that this process may use, which may be less than the machine's; the NVIDIA driver.


def allotted_cpus(root: Path = Path("/")) -> int:
    """Return the number of cores: those of the affinity, of the control groups below ``root`` and of Slurm's job."""
    found = [len(os.sched_getaffinity(0)), *_limits(root, "cpu", _cores)]
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
        if os.environ.get(name, "").isdecimal():
            found.append(int(os.environ[name]))
            break
    return max(1, int(min(found)))


def allotted_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory: the machine's, or what the control groups below ``root`` or Slurm's job allow."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits(root, "memory", _bytes)]
    if os.environ.get("SLURM_MEM_PER_NODE", "").isdecimal():
        found.append(int(os.environ["SLURM_MEM_PER_NODE"]) * 2**20)
    return int(min(found))


def _limits(root: Path, kind: str, read: Callable[[Path], float]) -> Iterator[float]:
    """Yield the limits of this process's control groups and of those above them, of version 1 and 2."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds and kind not in kinds.split(","):
                continue
            top = root / "sys/fs/cgroup" / (kind if kinds else "")
            group = top / path.lstrip("/")
            for folder in (group, *group.parents):
                with suppress(OSError, ValueError):
                    yield read(folder)
                if folder == top:
                    break


def _cores(folder: Path) -> float:
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text().split()
    else:
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    if float(quota) <= 0:  # -1: none; "max" is no number
        raise ValueError
    return float(quota) / float(period)


def _bytes(folder: Path) -> float:
    new = folder / "memory.max"
    return float((new if new.exists() else folder / "memory.limit_in_bytes").read_text())


def driver_problem() -> str | None:
    """Return PyTorch's sentence if the NVIDIA driver is too old for it, so that it finds no GPU; None if it is not."""
    import torch

    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        said = str(error).partition(". ")[0]
        return said if "too old" in said else None
    return None
