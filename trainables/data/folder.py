"""Images in one sub-folder a class, as torchvision's ``ImageFolder`` reads them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from trainables.data.dataset import Dataset
from trainables.data.images import IMAGE_SUFFIXES, read_image
from trainables.data.listing import listed
from trainables.mistakes import Mistakes


def _images_below(folder: Path, root: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
                yield Path(place, name).relative_to(root).as_posix()


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Folder(Dataset):
    """``root`` holds one sub-folder a class; classes and images come in the order of their names."""

    summary: ClassVar[str] = "your own images: root holds one sub-folder a class"

    root: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.root is None:
            raise Mistakes("dataset.root is missing: give the folder that holds one sub-folder of images a class.")
        if not self._root.is_dir():
            what = "is not a folder" if self._root.exists() else "does not exist"
            raise Mistakes(f"dataset.root is {str(self.root)!r}, which {what}. Give the classes' folder.")
        if not self._class_names():
            raise Mistakes(f"dataset.root is {str(self.root)!r}, which has no sub-folder. Give it one a class.")

    @property
    def _root(self) -> Path:
        assert self.root is not None
        return Path(self.root)

    def _class_names(self) -> list[str]:
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_dir() and entry.name[0] != ".")

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Class name → paths below ``root``.

        Raises:
            Mistakes: classes without an image, or names that are not UTF-8.
        """
        classes = {name: tuple(sorted(_images_below(self._root / name, self._root))) for name in self._class_names()}
        sentences = []
        if empty := [name for name, keys in classes.items() if not keys]:
            sentences.append(
                f"{len(empty)} of the {len(classes)} class folders in {str(self.root)!r} hold no image: "
                f"{listed(empty)}. Remove them or give them images ({', '.join(sorted(IMAGE_SUFFIXES))})."
            )
        if odd := [repr(key) for keys in classes.values() for key in keys if not _is_utf8(key)]:
            sentences.append(f"{len(odd)} file names are not UTF-8: {listed(odd)}. Rename them.")
        if sentences:
            raise Mistakes(sentences)
        return classes

    def identity(self) -> str:
        return "folder"

    def stamp(self, key: str) -> str:
        status = (self._root / key).stat()
        return f"{status.st_size}-{status.st_mtime_ns}"

    def read(self, key: str) -> np.ndarray:
        return read_image(self._root / key)
