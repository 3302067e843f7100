"""A data set of embeddings that somebody has computed, of images, texts, sounds or anything else."""

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from trainables.data.dataset import Dataset, sorted_classes
from trainables.data.feature_file import LABELS, SUFFIXES, FeatureArrays, is_feature_file, read_features
from trainables.data.images import read_image
from trainables.data.store.contents import image_digest
from trainables.errors import InvalidInput, suggestion


@dataclass(frozen=True, kw_only=True)
class FeatureFile(Dataset):
    """Items of a file of embeddings, in its order; classes are sorted by name, whole numbers by size.

    Keys are the ids of the file, or its row numbers. If it has paths of images, they are relative to ``root``.
    """

    summary: ClassVar[str] = "embeddings of anything: images, texts, sounds, rows of a table"
    publisher: ClassVar[str] = "your own data"
    layout: ClassVar[str] = """\
embeddings  items × features
labels      text or whole numbers
ids, paths, groups  if you have them"""

    file: str | os.PathLike[str] | None = field(
        default=None, metadata={"about": f"a file ({', '.join(SUFFIXES)}) with these arrays"}
    )
    root: str | os.PathLike[str] | None = field(
        default=None, metadata={"about": "the folder to which paths are relative; by default that of the file"}
    )

    def __post_init__(self) -> None:
        if self.file is None:
            raise InvalidInput("dataset.file is missing: give a file of embeddings.")
        if not is_feature_file(self.file):
            raise InvalidInput(
                f"dataset.file is {str(self.file)!r}; the suffix sets the format and must be one of "
                f"{', '.join(SUFFIXES)}{suggestion(Path(self.file).suffix, SUFFIXES)}."
            )
        if not os.path.isfile(self.file):
            what = "is not a file" if os.path.exists(self.file) else "does not exist"
            raise InvalidInput(f"dataset.file is {str(self.file)!r}, which {what}. Give a file of embeddings.")

    @property
    def _path(self) -> Path:
        assert self.file is not None
        return Path(self.file)

    def _content(self) -> "_Content":
        status = self._path.stat()
        return _content(self._path, status.st_mtime_ns, status.st_size)

    def features(self) -> int:
        return self._content().arrays.embeddings_NF.shape[1]

    def classes(self) -> dict[str, tuple[str, ...]]:
        return self._content().classes

    def groups(self) -> dict[str, str]:
        arrays = self._content().arrays
        return {} if arrays.groups is None else dict(zip(arrays.names, arrays.groups, strict=True))

    def identity(self) -> str:
        return "features"

    def stamp(self, key: str) -> str:
        return image_digest(self.read(key))  # of the content, so that a file may move or be written again

    def read(self, key: str) -> np.ndarray:
        content = self._content()
        return content.arrays.embeddings_NF[content.row_of[key]]

    def picture(self, key: str) -> np.ndarray | None:
        content = self._content()
        if content.arrays.paths is None:
            return None
        root = Path(self.root or self._path.parent).resolve()
        path = (root / content.arrays.paths[content.row_of[key]]).resolve()
        try:
            return read_image(path) if path.is_relative_to(root) else None
        except Exception:  # decoders raise anything; a report does without the picture
            return None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Content:
    """The content of a file, its classes with the keys of their items, and the row of each key."""

    arrays: FeatureArrays
    classes: dict[str, tuple[str, ...]]
    row_of: dict[str, int]


@lru_cache(maxsize=1)
def _content(path: Path, changed: int, size: int) -> _Content:
    """Read the file at ``path`` once per process, until it was ``changed`` or has another ``size``."""
    arrays = read_features(path, key="dataset.file")
    if arrays.labels is None:
        raise InvalidInput(f"dataset.file is {str(path)!r}, which has no {LABELS}; give a class for each embedding.")
    classes: dict[str, list[str]] = {}
    for label, key in zip(arrays.labels, arrays.names, strict=True):
        classes.setdefault(label, []).append(key)
    return _Content(
        arrays=arrays,
        classes={label: tuple(classes[label]) for label in sorted_classes(classes)},
        row_of={key: row for row, key in enumerate(arrays.names)},
    )
