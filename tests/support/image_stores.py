"""Image stores of a few images."""

from collections.abc import Sequence
from pathlib import Path

from trainables.data.dataset import Dataset
from trainables.data.store.store_spec import StoreSpec


def build_store(dataset: Dataset, class_names: Sequence[str], *, short_side: int, cache: Path) -> Path:
    """Find or build the store of some classes and return its path, without a lock."""
    return StoreSpec(dataset=dataset, class_names=tuple(class_names), short_side=short_side, cache=str(cache)).make()
