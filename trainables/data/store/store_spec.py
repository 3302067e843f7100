"""The specification of an image store, from which any node finds or builds it.

A store is a folder of three files, written by :mod:`trainables.data.store.build` and never changed afterwards:

- ``pixels.bin``: uint8, the images of any size one after the other, each column by column in RGB (resampling sums
  columns first); or the vectors of a data set of features, float32;
- ``arrays.npz``: ``labels_N`` (int64, indices of class names) and ``sizes_N2`` (int64, height and width);
- ``index.json``: the format, the data set and the largest short side, the number of features (null for images), the
  class names, the image keys and the digests of the images' content.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.data.dataset import Dataset

if TYPE_CHECKING:
    from trainables.data.store.view import Store


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """Images of ``class_names``, scaled down to a short side of ``short_side`` pixels, in a store below ``cache``."""

    dataset: Dataset
    class_names: tuple[str, ...]
    short_side: int
    cache: str

    def make(self) -> Path:
        """Find or build the store and return its path as :meth:`held` does; torch is not imported."""
        with self.held() as path:
            return path

    @contextmanager
    def held(self, on_progress: Callable[[int, int], None] | None = None) -> Iterator[Path]:
        """Find or build the store, see :func:`trainables.data.store.build.held_store`."""
        from trainables.data.store.build import held_store  # imports numpy and Pillow, which a plan does not need

        with held_store(self, on_progress) as path:
            yield path

    def find(self) -> Path | None:
        """Return the path of the store if it exists; no image is opened."""
        from trainables.data.store.build import find_store

        return find_store(self)

    def open(self) -> "Store":
        """Find or build the store and open it. All processes of a node share one copy, locked while it is open."""
        from trainables.data.store.view import Store  # imports torch

        with self.held() as path:
            return Store(path)
