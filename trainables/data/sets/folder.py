"""Images in one sub-folder a class, as torchvision's ``ImageFolder`` reads them."""

import os
from dataclasses import dataclass
from typing import ClassVar

from trainables.data.images import IMAGE_SUFFIXES
from trainables.data.listing import listed
from trainables.data.sets.rooted import RootedDataset, images_below, leads_nowhere
from trainables.mistakes import Mistakes


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
