"""Which images a training needs: enough to find their store on any node, or to make it there once."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.data.dataset import Dataset

if TYPE_CHECKING:
    from trainables.data.store.build import Store


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """The images of ``class_names``, their short side at most ``short_side`` pixels, stored below ``cache``."""

    dataset: Dataset
    class_names: tuple[str, ...]
    short_side: int
    cache: str

    def open(self, on_progress: Callable[[int, int], None] | None = None) -> "Store":
        """The store, found or built; every process of a node shares one copy.

        Raises:
            Mistakes: images that cannot be read, all of them named.
        """
        from trainables.data.store.build import build_store  # here, since it reads with torch and who plans does not

        return build_store(
            self.dataset,
            self.class_names,
            short_side=self.short_side,
            cache=Path(self.cache),
            workers=os.cpu_count() or 1,
            on_progress=on_progress,
        )


@lru_cache(maxsize=2)
def opened_store(spec: StoreSpec) -> "Store":
    """The store of ``spec``, kept open by this process, so that the trials of one actor share it."""
    return spec.open()
