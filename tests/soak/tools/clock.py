"""A wrong clock for a driver, by a preloaded library."""

import functools
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def _library() -> Path:
    """Return the library, built once per process."""
    built = Path(tempfile.mkdtemp(prefix="holdout-clock-")) / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(built), str(source)], check=True)
    return built


class Clock:
    """The clock of processes started with :attr:`environment`, with an offset in seconds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of processes with this clock."""
        return {"LD_PRELOAD": str(_library()), "HOLDOUT_SOAK_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Set the offset; processes with this clock keep the file open."""
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    def right(self) -> None:
        self.jump(0)
