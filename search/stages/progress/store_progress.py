"""How far the decoding of images is."""

import time

from rich.console import Console


class StoreProgress:
    """Says now and then how many images are decoded. ``heard`` is when the last one was, on the monotonic clock."""

    def __init__(self, console: Console, every_s: float = 5) -> None:
        self._console = console
        self._every_s = every_s
        self.heard = time.monotonic()
        self._next = self.heard + every_s

    def __call__(self, done: int, total: int) -> None:
        """Take the number of images decoded so far."""
        self.heard = time.monotonic()
        if self.heard >= self._next:
            self._console.print(f"Decoding images: {done:,} of {total:,}", style="dim", highlight=False)
            self._next = time.monotonic() + self._every_s
