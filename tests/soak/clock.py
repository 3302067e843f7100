"""Another clock for a driver, by libfaketime."""

from pathlib import Path

LIBRARIES = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def why_not() -> str | None:
    """Why there is no other clock here; None where there is."""
    return None if LIBRARIES else "needs Debian's package faketime"


class Clock:
    """What a process that was started with :attr:`environment` takes for the time: so many seconds from now."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.right()

    @property
    def environment(self) -> dict[str, str]:
        """For processes that shall see it."""
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }

    def jump(self, seconds: int) -> None:
        """Be wrong from now on."""
        self._file.write_text(f"{seconds:+d}\n")

    def right(self) -> None:
        """Be right again."""
        self._file.write_text("+0\n")
