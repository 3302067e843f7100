"""A small file system of a test's own, and another program that fills it."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SIZE = 64_000_000
_BLOCKS = (b"\0" * 65536, b"\0" * 512, b"\0")


class SmallDisk:
    """A file system of its own at ``path``, of which a file ``filler`` takes as much as is wanted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    @property
    def free(self) -> int:
        """Bytes that can be written."""
        there = os.statvfs(self.path)
        return there.f_bavail * there.f_frsize

    def clear(self) -> None:
        """Make room."""
        self._filler.unlink(missing_ok=True)

    def leave(self, count: int) -> None:
        """Take all but ``count`` bytes."""
        self.clear()
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, self.free - count))
        assert self.free <= count

    def fill(self) -> None:
        """Leave not one byte, also while others write and remove files."""
        with self._filler.open("ab", buffering=0) as file:
            for block in _BLOCKS:
                with suppress(OSError):
                    while file.write(block) == len(block):
                        pass


@contextmanager
def small_disk(path: Path, size: int = SIZE) -> Iterator[SmallDisk]:
    """A file system of ``size`` bytes at ``path``; a test that may not mount one is skipped."""
    path.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={size}"]
    mounted = subprocess.run(["mount", *options, "none", str(path)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a file system of its own cannot be mounted here ({mounted.stderr.strip()})")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def full() -> OSError:
    """What a full disk raises."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
