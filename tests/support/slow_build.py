"""A process that builds a store of drawn images one by one, as the test asks for them, which can meet it half way."""

import os
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
    """Drawn images that tell which of them is read, and wait for an answer."""

    parent: ClassVar[Connection]

    def read(self, key: str) -> Any:
        self.parent.send(key)
        self.parent.recv()
        return super().read(key)


def _build(parent: Connection, cache: Path) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one thread reads
    SlowGlyphs.parent = parent
    dataset = SlowGlyphs(num_classes=4, images_per_class=12)
    StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=40, cache=str(cache)).make()


def slow_build(cache: Path, *, read: int) -> tuple[ForkProcess, Iterator[str]]:
    """Start a process that builds the store of ``GLYPHS``; return once some of its 48 images are read.

    It reads another one whenever a key is taken from the iterator.
    """
    process, connection = forked(_build, cache)
    keys = _answered(connection)
    assert all(next(keys).startswith("glyph-") for _ in range(read))
    return process, keys


def _answered(connection: Connection) -> Iterator[str]:
    with connection:
        while True:
            try:
                key = connection.recv()
            except EOFError:
                return
            connection.send("read it")
            yield key
