"""This machine: the cores and the memory that this process may use, which may be less, and the NVIDIA driver."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path


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
