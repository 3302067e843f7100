"""The progress of long computations, logged with a forecast."""

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # progress, which a command shows though it shows warnings only of other modules

FIRST_S = 5.0
"""Seconds until the first line; the next comes after twice as long, and so on."""


class Forecast:
    """Progress of ``what`` towards ``total`` steps of about the same time each."""

    def __init__(self, what: str, total: int, now: Callable[[], float] = time.monotonic) -> None:
        self._what, self._total, self._now = what, total, now
        self._start, self._next, self._done = now(), FIRST_S, 0

    def add(self, done: int) -> None:
        """Note ``done`` more steps; log a line if it is time for one."""
        self._done += done
        passed = self._now() - self._start
        if passed >= self._next and self._done < self._total:
            self._next = 2 * passed
            left = passed * (self._total / self._done - 1)
            logger.info(
                "%s: %.1f %% after %s, about %s left.",
                self._what, 100 * self._done / self._total, _lasting(passed), _lasting(left),
            )  # fmt: skip


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"
