"""Another clock for a driver, by a library that it loads first."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path


def why_not() -> str | None:
    """Why there is no other clock here; None where there is."""
    return None if shutil.which("cc") else "needs a C compiler (Debian's package gcc)"


@functools.cache
def _library() -> Path:
    """The library, built once a process."""
    built = Path(tempfile.mkdtemp(prefix="holdout-clock-")) / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(built), str(source)], check=True)
    return built


class Clock:
    """What a process that was started with :attr:`environment` takes for the time: so many seconds from now."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))

    @property
    def environment(self) -> dict[str, str]:
        """For processes that shall see it."""
        return {"LD_PRELOAD": str(_library()), "HOLDOUT_SOAK_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Be wrong from now on; those that see it keep the file open."""
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    def right(self) -> None:
        """Be right again."""
        self.jump(0)
