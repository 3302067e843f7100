"""A wall clock that jumps by a year, back and forth, every second; for the PYTHONPATH of a process."""

import time

YEAR_S = 365 * 24 * 3600.0
_time, _gmtime, _localtime = time.time, time.gmtime, time.localtime


def _turned() -> float:
    return _time() + (YEAR_S if int(time.monotonic()) % 2 else -YEAR_S)


time.time = _turned
time.time_ns = lambda: int(_turned() * 1e9)
time.gmtime = lambda seconds=None: _gmtime(_turned() if seconds is None else seconds)
time.localtime = lambda seconds=None: _localtime(_turned() if seconds is None else seconds)
