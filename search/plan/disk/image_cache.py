"""The decoded images of a node: where they are, and what is there."""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search.plan.disk.folder_size import folder_size
from search.plan.runs import RunFolder, stored_config, stored_split
from trainables.data.augmentation.augment import Frame, short_side_needed
from trainables.data.store.files import INDEX
from trainables.data.store.in_use import is_used, last_used
from trainables.mistakes import Mistakes
from trainables.training.config import RESIZE

UNREADABLE = (Mistakes, OSError, LookupError, TypeError, ValueError)
"""What the file of a search raises that an older version wrote, or that was edited by hand."""


def default_cache() -> str:
    """Where a node keeps decoded images when the search file names no folder."""
    return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdout")


@dataclass(frozen=True, kw_only=True)
class StoreUsage:
    """One image store and its ``size`` in bytes.

    ``dataset`` and ``short_side`` are None where an older version wrote it, and ``classes`` and ``images`` too where it
    is not whole: it is being made, or who made it was killed. ``searches`` are those of the runs folder whose images
    these are. It was ``used`` last at a time in seconds since 1970, and is ``in_use`` where a process of this machine
    uses it now.
    """

    path: str
    size: int
    used: float
    in_use: bool
    dataset: str | None = None
    short_side: int | None = None
    classes: int | None = None
    images: int | None = None
    searches: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Images:
    """What a search wants of a store."""

    search: str
    dataset: str
    short_side: int
    classes: frozenset[str]

    def are_in(self, index: Mapping[str, Any]) -> bool:
        return (
            index.get("dataset", self.dataset) == self.dataset
            and index.get("short_side", self.short_side) == self.short_side
            and frozenset(index["class_names"]) == self.classes
        )


def image_stores(searches: Iterable[RunFolder]) -> list[StoreUsage]:
    """The stores in this machine's cache and in the caches that ``searches`` name, the largest first."""
    searches, wanted = list(searches), []
    for search in searches:
        with suppress(*UNREADABLE):
            wanted += _wanted(search, stored_config(search))
    stores = [_store(path, wanted) for cache in caches_of(searches) for path in _stores_in(cache)]
    return sorted(stores, key=lambda store: (-store.size, store.path))


def caches_of(searches: Iterable[RunFolder]) -> list[Path]:
    """This machine's cache and those that ``searches`` name."""
    caches = {default_cache()}
    for search in searches:
        with suppress(*UNREADABLE):
            config: Mapping[str, Any] = stored_config(search)
            caches.add(config["dataset"]["cache"] or default_cache())
    return [Path(cache) for cache in sorted(caches)]


def _stores_in(cache: Path) -> list[Path]:
    if not cache.is_dir():
        return []
    return [path for path in sorted(cache.iterdir()) if path.is_dir() and not path.is_symlink()]


def _wanted(search: RunFolder, config: Mapping[str, Any]) -> list[_Images]:
    """The images of the training half and of the test half."""
    split, training = stored_split(search), config["training"]
    side = training["image_size"]
    frame = Frame(side=side, short_side=training["resize_size"] or round(side * RESIZE))
    short_side = short_side_needed(training["augment"], frame, config["dataset"]["store_size"])
    return [
        _Images(search.name, split.identity, short_side, frozenset(half))
        for half in ((*split.train, *split.validation), split.test)
    ]


def _store(path: Path, wanted: Iterable[_Images]) -> StoreUsage:
    size, used, in_use = folder_size(path), last_used(path.with_suffix("")), is_used(path.with_suffix(""))
    try:
        index = json.loads((path / INDEX).read_text())
        classes, images = len(index["class_names"]), len(index["image_keys"])
    except (OSError, ValueError, LookupError, TypeError):
        return StoreUsage(path=str(path), size=size, used=used, in_use=in_use)
    return StoreUsage(
        path=str(path),
        size=size,
        used=used,
        in_use=in_use,
        dataset=index.get("dataset"),
        short_side=index.get("short_side"),
        classes=classes,
        images=images,
        searches=tuple(sorted({images.search for images in wanted if images.are_in(index)})),
    )
