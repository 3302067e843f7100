"""Data sets of image files: their base class, folders with one sub-folder per class, and paths as on the disk."""

import errno
import os
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trainables.common.errors import InvalidInput, counted, listed, raise_if_any
from trainables.data.dataset import Dataset, grouped, is_utf8
from trainables.data.images import IMAGE_SUFFIXES, damage_in, read_image


@dataclass(frozen=True, kw_only=True)
class RootedDataset(Dataset):
    """Data set of image files below the folder ``root``; image keys are paths relative to it."""

    root: str | os.PathLike[str] | None = field(default=None, metadata={"about": "the folder, laid out like this"})

    def __post_init__(self) -> None:
        if self.root is None:
            raise InvalidInput("dataset.root is missing: give the folder that holds the images.")
        object.__setattr__(self, "root", as_on_disk(self.root))
        if not os.path.isdir(self._root):
            what = "is not a folder" if os.path.exists(self._root) else "does not exist"
            found = f"{str(self.root)!r}, which {what}"
            raise InvalidInput(f"dataset.root is {found}. Give the folder that holds the images.")

    @cached_property
    def _root(self) -> Path:
        assert self.root is not None
        return Path(self.root)

    def path(self, key: str) -> Path:
        return self._root / key

    def stamp(self, key: str) -> str:
        status = os.stat(f"{self._root}/{key}")  # called half a million times: a Path would take twice as long
        return f"{status.st_size}-{status.st_mtime_ns}"

    def read(self, key: str) -> np.ndarray:
        return read_image(self.path(key))

    def damage(self, key: str) -> str | None:
        reads_images = type(self).read is RootedDataset.read  # a subclass may read files of another kind
        return damage_in(self.path(key)) if reads_images else None

    def __getstate__(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}  # cached properties are not pickled


SYSTEM_FOLDERS = frozenset(
    {
        "#recycle", "#snapshot", "$recycle.bin", "@__thumb", "@eadir", "@recently-snapshot", "@recycle", "@tmp",
        "@transcode", "__macosx", "found.000", "lost+found", "network trash folder", "recycle bin", "recycled",
        "recycler", "system volume information", "temporary items", "trash", "~snapshot",
    }
)  # fmt: skip
"""Folders of operating systems and network storage, in lower case, beside the hidden ones: their images are thumbnails,
copies or deleted."""


def _is_system(folder: str) -> bool:
    return folder.startswith(".") or folder.lower() in SYSTEM_FOLDERS


def _is_image(file: str) -> bool:
    return os.path.splitext(file.rstrip(" ."))[1].lower() in IMAGE_SUFFIXES


def images_below(folder: Path, root: Path, seen: dict[tuple[int, int], str] | None = None) -> Iterator[str]:
    """Yield paths relative to ``root`` of the images in ``folder``, following links.

    Hidden files and the folders of systems are skipped. ``seen`` maps device and inode of the folders already visited
    to their paths. Raises :class:`InvalidInput` if one cannot be read or is reached twice, or links are broken.
    """
    seen = {} if seen is None else seen
    lost = []
    above = folder.relative_to(root).as_posix()  # once: a Path for each folder would take longer than reading it
    for path, files, _ in _walked(folder):
        status = os.stat(path)
        first = seen.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            raise InvalidInput(
                f"{path!r} is the folder {first!r} by another name, so its images would be read twice; remove the link."
            )
        below = above + path[len(str(folder).rstrip("/")) :]
        for name in files:
            if _is_image(name) and not name.startswith("."):
                yield f"{below}/{name}"
            elif _is_broken_link(f"{path}/{name}") and not name.startswith("."):
                lost.append(f"{below}/{name}")
    raise_if_any(_broken(lost, folder))


def _broken(links: Sequence[str], folder: object) -> list[str]:
    what = f"{counted(len(links), 'broken link')} in {str(folder)!r}"
    return [f"{what}: {listed(links)}. Fix or remove."] if links else []


def _walked(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield ``folder`` and those below it, each with the names of its files and of its folders that are skipped.

    Links are followed. Unlike ``os.walk`` before Python 3.12, it does not recurse, so folders may be nested in any
    number of levels.
    """
    left = [str(folder)]
    while left:
        path, files, skipped = left.pop(), list[str](), list[str]()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if not _is_folder(entry):
                        files.append(entry.name)
                    elif _is_system(entry.name):
                        skipped.append(entry.name)
                    else:
                        left.append(entry.path)
        except OSError as error:
            raise InvalidInput(f"{error.filename!r} cannot be read: {error.strerror}. Fix or remove it.") from error
        yield path, files, skipped


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself, which is reported with the other broken links
            return False
        raise


def _is_broken_link(path: str) -> bool:
    return os.path.islink(path) and not os.path.exists(path)


@dataclass(frozen=True, kw_only=True)
class Folder(RootedDataset):
    """Images in one sub-folder per class, sorted by name."""

    summary: ClassVar[str] = "your own images: root holds one sub-folder a class"
    publisher: ClassVar[str] = "your own data"
    layout: ClassVar[str] = """\
heron/anything.jpg
heron/deeper/anything.png
kestrel/anything.jpg"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._class_names():
            found = f"{str(self.root)!r}, which has no sub-folder"
            raise InvalidInput(f"dataset.root is {found}. Give it one for each class.")

    def _class_names(self) -> list[str]:
        folders = (entry.name for entry in self._entries() if os.path.isdir(entry.path))
        return sorted(name for name in folders if not _is_system(name))

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._root) as entries:
                return [entry for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            found = f"{str(self.root)!r}, which cannot be read: {error.strerror}"
            raise InvalidInput(f"dataset.root is {found}. Permit reading it.") from error

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Map class names to paths relative to ``root``, as :func:`images_below`; each class needs an image."""
        root = self._root
        seen: dict[tuple[int, int], str] = {}  # shared, so that two classes cannot be the same folder
        classes = {name: tuple(sorted(images_below(root / name, root, seen))) for name in self._class_names()}
        sentences = _broken(sorted(entry.name for entry in self._entries() if _is_broken_link(entry.path)), root)
        if empty := [name for name, keys in classes.items() if not keys]:
            sentences.append(
                f"{len(empty)} of the {len(classes)} class folders in {str(self.root)!r} without images: "
                f"{listed(empty)}. Remove them or add images ({', '.join(sorted(IMAGE_SUFFIXES))})."
            )
        if odd := [repr(key) for keys in classes.values() for key in keys if not is_utf8(key)]:
            sentences.append(f"{counted(len(odd), 'file name')} that cannot be read as UTF-8: {listed(odd)}. Rename.")
        raise_if_any(sentences)
        return classes

    def left_out(self) -> str | None:
        return left_out(self._root, of_classes=True)

    def identity(self) -> str:
        return "folder"


def left_out(root: Path, *, of_classes: bool) -> str | None:
    """Count what is no image below ``root`` in a sentence, and the images beside its folders if they are classes."""
    suffixes: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    hidden, beside = 0, 0
    for path, files, skipped in _walked(root):
        folders.update(skipped)
        shown = [name for name in files if not name.startswith(".")]
        hidden += sum(map(_is_image, files)) - sum(map(_is_image, shown))
        beside += sum(map(_is_image, shown)) if of_classes and path == str(root) else 0
        suffixes.update(os.path.splitext(name)[1].lower() or "none" for name in shown if not _is_image(name))

    def most(names: Counter[str]) -> str:
        return listed([f"{name} {count:,}" for name, count in sorted(names.items())], shown=8)

    found = {
        f"{counted(suffixes.total(), 'file')} without the suffix of an image ({most(suffixes)})": suffixes,
        f"{counted(hidden, 'hidden image')}": hidden,
        f"{counted(beside, 'image')} beside the folders of classes": beside,
        f"{counted(folders.total(), 'folder')} of systems ({most(folders)})": folders,
    }
    left = [words for words, count in found.items() if count]
    return f"Left out in {str(root)!r}: {'; '.join(left)}." if left else None


def _alike(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).rstrip()


class Folders:
    """Names in folders, listed once, for paths written in another Unicode form or case, or with backslashes."""

    def __init__(self) -> None:
        self._names: dict[Path, dict[str, tuple[str, ...]]] = {}

    def _alike_in(self, folder: Path, name: str) -> tuple[str, ...]:
        if folder not in self._names:
            entries = os.listdir(folder) if folder.is_dir() else ()
            self._names[folder] = grouped((_alike(entry), entry) for entry in entries)
        found = self._names[folder].get(_alike(name), ())
        return (name,) if name in found else found

    def meant(self, root: Path, path: str) -> str | None:
        """Return the path below ``root`` that ``path`` can only mean; None if it means none or several."""
        for parts in (path.split("/"), path.replace("\\", "/").split("/")):
            folder, found = root, list[str]()
            for part in parts:
                names = (part,) if part in ("", ".", "..") else self._alike_in(folder, part)
                if len(names) != 1:
                    break
                found.append(names[0])
                folder /= names[0]
            else:
                return os.path.normpath("/".join(found))
        return None


def as_on_disk(path: str | os.PathLike[str]) -> Path:
    """Return ``path``, or where there is none the path that it can only mean."""
    given = Path(path)
    if given.exists():
        return given
    found = Folders().meant(Path("/"), os.path.abspath(given).lstrip("/"))
    return given if found is None else Path("/", found)


def check_file(file: str | os.PathLike[str] | None, what: str) -> Path:
    """Return the path of the file that ``dataset.file`` names; raise :class:`InvalidInput`, to give ``what``."""
    if file is None:
        raise InvalidInput(f"dataset.file is missing: give {what}.")
    found = as_on_disk(file)
    if not found.is_file():
        problem = "is not a file" if found.exists() else "does not exist"
        raise InvalidInput(f"dataset.file is {str(file)!r}, which {problem}. Give {what}.")
    return found
