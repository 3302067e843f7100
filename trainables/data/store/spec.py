"""Which images a training needs, and where their store is."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.data.dataset import Dataset

if TYPE_CHECKING:
    from trainables.data.store.view import Store


# The files of an image store.
#
# A store is a folder of three files, made by :func:`trainables.data.store.build.build_store` and never changed after:
#
# - ``pixels.bin``: uint8, the images one after the other, each column by column in RGB, of whatever size (columns are
# what resampling adds first);
# - ``arrays.npz``: ``labels_N`` (int64, indices of class names) and ``sizes_N2`` (int64, height and width);
# - ``index.json``: the format, the data set and the largest short side, the class names, the image keys
# and the digests of the images' content.

FORMAT = 3
PIXELS, ARRAYS, INDEX = "pixels.bin", "arrays.npz", "index.json"


# Which images a training needs: enough to find their store on any node, or to make it there once.


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """The images of ``class_names``, their short side at most ``short_side`` pixels, stored below ``cache``."""

    dataset: Dataset
    class_names: tuple[str, ...]
    short_side: int
    cache: str

    def make(self, on_progress: Callable[[int, int], None] | None = None) -> Path:
        """Find the store, or build it; its path. Nothing of it is read with torch.

        Raises:
            Mistakes: images that cannot be read, all of them named, or a store that is damaged.
            DiskFull: there is no space for it.
        """
        with self.held(on_progress) as path:
            return path

    @contextmanager
    def held(self, on_progress: Callable[[int, int], None] | None = None) -> Iterator[Path]:
        """The same; nobody on this machine removes the store while this lasts."""
        # Here, since they read with numpy and Pillow, and who plans does not.
        from trainables.data.store.build import held_store
        from trainables.data.store.contents import read_contents

        with held_store(
            self.dataset,
            self.class_names,
            short_side=self.short_side,
            cache=Path(self.cache),
            workers=os.cpu_count() or 1,
            on_progress=on_progress,
        ) as path:
            read_contents(path)
            yield path

    def find(self) -> Path | None:
        """The store, if it is there; no image is opened."""
        from trainables.data.store.build import find_store

        return find_store(self.dataset, self.class_names, short_side=self.short_side, cache=Path(self.cache))

    def open(self) -> "Store":
        """The store, found or built; every process of a node shares one copy, and nobody removes it meanwhile.

        Raises:
            Mistakes: as :meth:`make`.
            DiskFull: as :meth:`make`.
        """
        from trainables.data.store.view import Store

        with self.held() as path:
            return Store.open(path)


@lru_cache(maxsize=2)
def opened_store(spec: StoreSpec) -> "Store":
    """The store of ``spec``, kept open by this process, so that the trials of one actor share it."""
    return spec.open()
