"""A process that builds the store of drawn images so slowly that it can be met, or killed, half way."""

import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, ClassVar

from support.forks import forked

from trainables.data.sets.glyphs import Glyphs
from trainables.data.store.store_spec import StoreSpec

GLYPHS = Glyphs(num_classes=4, images_per_class=12)


class SlowGlyphs(Glyphs):
    """Drawn images that tell which of them is read."""

    parent: ClassVar[Connection]

    def read(self, key: str) -> Any:
        self.parent.send(key)
        time.sleep(0.02)
        return super().read(key)


def _build(parent: Connection, cache: Path) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one thread reads
    SlowGlyphs.parent = parent
    dataset = SlowGlyphs(num_classes=4, images_per_class=12)
    StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=40, cache=str(cache)).make()


def slow_build(cache: Path, *, read: int) -> tuple[ForkProcess, Iterator[str]]:
    """Start a process that builds the store of ``GLYPHS`` in a second; return once some of 48 images are read.

    The keys of the others are returned with it.
    """
    process, connection = forked(_build, cache)
    keys = _received(connection)
    assert all(next(keys).startswith("glyph-") for _ in range(read))
    return process, keys


def _received(connection: Connection) -> Iterator[str]:
    with connection:
        while True:
            try:
                yield connection.recv()
            except EOFError:
                return
