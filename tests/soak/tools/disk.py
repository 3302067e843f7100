"""Small file systems of our own that can be filled."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BLOCK = b"\0" * 65536
FILLER = "filler"


class Disk:
    """A file system of its own at ``path``, in main memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / FILLER

    def fill(self) -> None:
        """Leave not one byte."""
        with self._filler.open("ab", buffering=0) as file:
            for block in (BLOCK, BLOCK[:512], BLOCK[:1]):
                try:
                    while file.write(block) == len(block):
                        pass
                except OSError:
                    continue

    def empty(self) -> None:
        """Give back what was filled."""
        self._filler.unlink(missing_ok=True)


def why_not() -> str | None:
    """Why this machine mounts nothing for us; None where it does."""
    return None if os.getuid() == 0 else "mounts file systems, which only root may"


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Disk]:
    """A file system of so many megabytes at ``path``."""
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "holdout-soak", str(path)], check=True)
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
