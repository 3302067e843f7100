"""Data sets that are folders of images: one sub-folder a class, and Omniglot."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.data.dataset import Dataset, listed
from trainables.data.images import IMAGE_SUFFIXES, read_image
from trainables.mistakes import Mistakes

# A data set whose images lie below one folder; their keys are paths below it.


@dataclass(frozen=True, kw_only=True)
class RootedDataset(Dataset):
    """Images below ``root``, which has to be a folder."""

    root: str | os.PathLike[str] | None = field(default=None, metadata={"about": "the folder, laid out like this"})

    def __post_init__(self) -> None:
        if self.root is None:
            raise Mistakes("dataset.root is missing: give the folder that holds the images.")
        if not os.path.isdir(self._root):
            what = "is not a folder" if os.path.exists(self._root) else "does not exist"
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


def images_below(folder: Path, root: Path, seen: dict[tuple[int, int], str] | None = None) -> Iterator[str]:
    """Paths below ``root`` of the images in ``folder``, hidden ones left out, links followed.

    ``seen`` are the folders that were read before, by what the file system calls them.

    Raises:
        Mistakes: a folder that cannot be read, that is met twice by links, or links that lead nowhere.
    """
    seen = {} if seen is None else seen
    lost = []
    for path, folders, files in os.walk(folder, onerror=_refuse, followlinks=True):
        status = os.stat(path)
        first = seen.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            raise Mistakes(
                f"{path!r} is the folder {first!r} by another name, so that its images would be read twice; remove the "
                "link."
            )
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = Path(path).relative_to(root).as_posix()
        for name in files:
            if name.startswith("."):
                continue
            if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
                yield f"{below}/{name}"
            elif leads_nowhere(f"{path}/{name}"):
                lost.append(f"{below}/{name}")
    if lost:
        raise Mistakes(f"{len(lost)} links in {str(folder)!r} lead nowhere: {listed(lost)}. Mend or remove them.")


def leads_nowhere(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` is a link to what is not there."""
    return os.path.islink(path) and not os.path.exists(path)


def _refuse(error: OSError) -> None:
    raise Mistakes(f"{error.filename!r} cannot be read: {error.strerror}. Mend or remove it.") from error


# Images in one sub-folder a class, as torchvision's ``ImageFolder`` reads them.


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Folder(RootedDataset):
    """``root`` holds one sub-folder a class; classes and images come in the order of their names."""

    summary: ClassVar[str] = "your own images: root holds one sub-folder a class"
    publisher: ClassVar[str] = "yourself"
    layout: ClassVar[str] = """\
heron/anything.jpg
heron/deeper/anything.png
kestrel/anything.jpg"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._class_names():
            raise Mistakes(f"dataset.root is {str(self.root)!r}, which has no sub-folder. Give it one a class.")

    def _class_names(self) -> list[str]:
        return sorted(entry.name for entry in self._entries() if os.path.isdir(entry.path))

    def _entries(self) -> list[os.DirEntry[str]]:
        """What ``root`` holds, hidden entries left out."""
        try:
            with os.scandir(self._root) as entries:
                return [entry for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            raise Mistakes(
                f"dataset.root is {str(self.root)!r}, which cannot be read: {error.strerror}. Permit reading it."
            ) from error

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Class name → paths below ``root``.

        Raises:
            Mistakes: classes without an image, folders that cannot be read or have two names, links that lead nowhere,
                or names that are not UTF-8.
        """
        seen: dict[tuple[int, int], str] = {}  # two classes may not be one folder
        classes = {
            name: tuple(sorted(images_below(self._root / name, self._root, seen))) for name in self._class_names()
        }
        sentences = []
        if lost := sorted(entry.name for entry in self._entries() if leads_nowhere(entry.path)):
            sentences.append(
                f"{len(lost)} links in {str(self.root)!r} lead nowhere: {listed(lost)}. Mend or remove them."
            )
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


# Omniglot (Lake et al. 2015): handwritten characters of 50 alphabets, laid out as torchvision unpacks it.
