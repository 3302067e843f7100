"""The specification of an image store, from which any node finds or builds it.

A store is a folder of three files, written by :mod:`trainables.data.store.build` and never changed afterwards:

- ``pixels.bin``: uint8, the images of any size one after the other, each column by column in RGB (resampling sums
  columns first); or the vectors of a data set of features, float32;
- ``arrays.npz``: ``labels_N`` (int64, indices of class names) and ``sizes_N2`` (int64, height and width);
- ``index.json``: the format, the data set and the largest short side, the number of features (null for images), the
  class names, the image keys and the digests of the images' content.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.common.errors import InvalidInput
from trainables.common.files import digest_of
from trainables.common.storage import DiskFull, is_full
from trainables.data.dataset import Dataset
from trainables.data.store.cache import found_or_built

if TYPE_CHECKING:
    from trainables.data.store.view import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """Images of ``class_names``, scaled down to a short side of ``short_side`` pixels, in a store below ``cache``."""

    dataset: Dataset
    class_names: tuple[str, ...]
    short_side: int
    cache: str

    def _classes(self) -> dict[str, tuple[str, ...]]:
        wanted = set(self.class_names)
        # In the data set's order, so that all splits of one training half share a store.
        classes = {name: tuple(keys) for name, keys in self.dataset.classes().items() if name in wanted}
        assert len(classes) == len(wanted), f"classes that the data set does not have: {wanted - set(classes)}"
        return classes

    def _path(self, classes: dict[str, tuple[str, ...]]) -> Path:
        """Return the path of the store: its name is the SHA-256 of everything that determines its content."""
        from trainables.data.store.contents import FORMAT  # imports numpy, which a plan does not need

        stamps = [[name, [[key, self._stamp(key)] for key in keys]] for name, keys in classes.items()]
        content = [FORMAT, self.dataset.identity(), self.short_side, stamps]
        return Path(self.cache, digest_of(json.dumps(content).encode()))

    def _stamp(self, key: str) -> str:
        try:
            return self.dataset.stamp(key)
        except OSError as error:
            return f"unreadable: {error}"  # reading it will fail too and be reported with the others

    def find(self) -> Path | None:
        """Return the path of the store if it exists; no image is opened."""
        store = self._path(self._classes())
        return store if store.is_dir() else None

    @contextmanager
    def held(self, on_progress: Callable[[int, int], None] | None = None) -> Iterator[Path]:
        """Find or build the store and yield its path; it is locked within the context. torch is not imported.

        Images keep their aspect ratio and are never enlarged. Only images of ``class_names`` are opened. If several
        processes need a store, one builds it and the others wait; the remains of a killed process are removed by the
        next. Unused stores are evicted to make room.

        Raises:
            InvalidInput: images cannot be read (all are listed), or the store is damaged; or, caused by an ``OSError``,
                the cache cannot be written or the storage of the images cannot be reached.
            DiskFull: there is no space left for the store; the partial store is removed.
        """
        from trainables.data.store.build import expected_size, write_store
        from trainables.data.store.contents import read_contents

        classes = self._classes()
        keys = [key for keys in classes.values() for key in keys]
        store = self._path(classes)

        def build(draft: Path) -> None:
            logger.info("Building the image store %s.", store)
            write_store(draft, self, classes, on_progress)

        try:
            store.parent.mkdir(parents=True, exist_ok=True)
            in_use = found_or_built(store, lambda: expected_size(self.dataset, keys, self.short_side), build)
        except OSError as error:
            if is_full(error):
                raise DiskFull.at(store, "set dataset.cache to another folder") from error
            raise InvalidInput(
                f"The cache cannot be written below {str(store.parent)!r}: {error.strerror or error}. "
                "Allow writing there, or set dataset.cache to another folder."
            ) from error
        try:
            read_contents(store)
            yield store
        finally:
            in_use.close()

    def make(self) -> Path:
        """Find or build the store and return its path."""
        with self.held() as path:
            return path

    def open(self) -> "Store":
        """Find or build the store and open it. All processes of a node share one copy, locked while it is open."""
        from trainables.data.store.view import Store  # imports torch

        with self.held() as path:
            return Store(path)


@lru_cache(maxsize=2)
def opened_store(spec: StoreSpec) -> "Store":
    """Open the store of ``spec`` once per process, so that the trials of an actor share it."""
    return spec.open()
