"""A small file system for one test, and ways to fill it."""

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SIZE = 64_000_000
_BLOCKS = (b"\0" * 65536, b"\0" * 512, b"\0")


class SmallDisk:
    """A file system at ``path``, filled as needed by a file ``filler``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    @property
    def free(self) -> int:
        there = os.statvfs(self.path)
        return there.f_bavail * there.f_frsize

    def clear(self) -> None:
        self._filler.unlink(missing_ok=True)

    def leave(self, count: int) -> None:
        """Fill all but ``count`` bytes."""
        self.clear()
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, self.free - count))
        assert self.free <= count

    def fill(self) -> None:
        """Fill every byte, also while other processes write and remove files."""
        with self._filler.open("ab", buffering=0) as file:
            for block in _BLOCKS:
                with suppress(OSError):
                    while file.write(block) == len(block):
                        pass


@contextmanager
def small_disk(path: Path, size: int = SIZE) -> Iterator[SmallDisk]:
    """Mount a file system of ``size`` bytes at ``path``; skip the test if that is not permitted."""
    path.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={size}"]
    mounted = subprocess.run(["mount", *options, "none", str(path)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here ({mounted.stderr.strip()})")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """Let no file of this process exceed ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
