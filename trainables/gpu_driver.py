"""The NVIDIA driver of this machine, and whether it is new enough for PyTorch's CUDA.

Without a check PyTorch only warns, and finds no GPU.
"""

import re
from pathlib import Path

VERSION_FILE = Path("/proc/driver/nvidia/version")

OLDEST = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""The oldest driver of Linux for each major version of CUDA (CUDA Toolkit release notes, "CUDA Driver")."""

NEWER_DRIVER = "Install a newer driver, or a PyTorch that is built for an older CUDA."


def installed_driver(file: Path = VERSION_FILE) -> str | None:
    """Return the version of the driver, such as 535.104.05; None if there is none."""
    try:
        found = re.search(r"Kernel Module\D*?(?:x86_64\s+|aarch64\s+)?(\d+\.\d+(?:\.\d+)?)", file.read_text())
    except OSError:
        return None
    return found.group(1) if found else None


def driver_problem(cuda: str | None, driver: str | None) -> str | None:
    """Return what is wrong with ``driver`` for PyTorch's ``cuda``, such as 12.8; None if nothing is."""
    if cuda is None or driver is None:
        return None
    oldest = OLDEST.get(int(cuda.partition(".")[0]))
    if oldest is None or _parts(driver) >= _parts(oldest):
        return None
    return f"PyTorch is built for CUDA {cuda}, which needs the NVIDIA driver {oldest} or newer; this is {driver}"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
