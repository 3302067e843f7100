"""A data set whose images lie below one folder; their keys are paths below it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trainables.data.dataset import Dataset
from trainables.data.images import IMAGE_SUFFIXES, read_image
from trainables.mistakes import Mistakes


@dataclass(frozen=True, kw_only=True)
class RootedDataset(Dataset):
    """Images below ``root``, which has to be a folder."""

    root: str | os.PathLike[str] | None = field(default=None, metadata={"about": "the folder, laid out like this"})

    def __post_init__(self) -> None:
        if self.root is None:
            raise Mistakes("dataset.root is missing: give the folder that holds the images.")
        if not self._root.is_dir():
            what = "is not a folder" if self._root.exists() else "does not exist"
            raise Mistakes(f"dataset.root is {str(self.root)!r}, which {what}. Give the folder that holds the images.")

    @cached_property
    def _root(self) -> Path:
        assert self.root is not None
        return Path(self.root)

    def stamp(self, key: str) -> str:
        status = os.stat(f"{self._root}/{key}")  # half a million of them: a Path would take twice as long
        return f"{status.st_size}-{status.st_mtime_ns}"

    def read(self, key: str) -> np.ndarray:
        return read_image(self._root / key)

    def damage(self, key: str) -> str | None:
        if type(self).read is not RootedDataset.read:
            return None  # files of another kind, which only their reader knows
        from trainables.data.header import damage_in  # imports parts of Pillow that who only lists does not need

        return damage_in(self._root / key)

    def __getstate__(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}  # what is cached stays at home


def images_below(folder: Path, root: Path) -> Iterator[str]:
    """Paths below ``root`` of the images in ``folder``, hidden ones left out, links followed."""
    for path, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = Path(path).relative_to(root).as_posix()
        for name in files:
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
                yield f"{below}/{name}"
