"""A simulated remote store: every write takes as long as a slow upload would."""

import time
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from upath.implementations.memory import MemoryPath
from upath.registry import register_implementation

BLOCK = 5 * 2**20  # the minimum part size of an S3 upload


class SlowFile(MemoryFile):
    """A file that accepts each block only when the previous ones would have been sent."""

    def write(self, content: Any) -> int:
        view, start = memoryview(content), time.monotonic()
        for position in range(0, len(view), BLOCK):
            block = view[position : position + BLOCK]
            super().write(block)
            sent = start + (position + len(block)) / SlowFileSystem.bytes_per_second
            time.sleep(max(0.0, sent - time.monotonic()))
        return len(view)


class SlowFileSystem(MemoryFileSystem):
    """A file system in main memory under ``slow://``."""

    protocol = "slow"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    bytes_per_second: ClassVar[float] = 60e6

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("slow:/")))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "wb":
            return super()._open(path, mode, **options)
        file = SlowFile(self, self._strip_protocol(path))
        file.commit()
        return file


def register_slow_store(bytes_per_second: float) -> None:
    """Register ``slow://`` with fsspec, with a write rate."""
    SlowFileSystem.bytes_per_second = bytes_per_second
    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    register_implementation("slow", MemoryPath, clobber=True)
