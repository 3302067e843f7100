"""The base class of published data sets: image lists for two halves of the classes, with known counts."""

import io
import os
import posixpath
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from trainables.common.errors import InvalidInput, counted, listed, raise_if_any
from trainables.common.files import digest_of, read_regular
from trainables.data.sets.folders import RootedDataset

ON_PURPOSE = ", or set dataset.subset to true if root holds only a part on purpose."

Classes = dict[str, tuple[str, ...]]
Halves = tuple[Classes, Classes]  # training classes and test classes
Counts = Mapping[str, int | tuple[int, int]]  # by what is counted; either of two numbers is right


def read_list(path: Path) -> list[str]:
    """Return the lines of a text file, which other separators than line breaks do not end; errors as in read_text."""
    return [line.removesuffix("\n") for line in io.StringIO(read_text(path), newline=None)]


def read_text(path: Path) -> str:
    """Return the text of a file; raise :class:`InvalidInput` if it cannot be read."""
    try:
        return read_regular(path).decode("utf-8-sig")  # -sig: some editors write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidInput(f"{str(path)!r} cannot be read: {reason}. Give a readable file.") from error


def is_outside(key: str) -> bool:
    """Return True if a path below a folder leads out of it."""
    return key.startswith("/") or ".." in key.split("/") or "\0" in key


def present_below(root: Path, keys: Sequence[str]) -> set[str]:
    """Return the ``keys`` that exist below ``root``, listing each folder once."""
    present: set[str] = set()
    for folder in dict.fromkeys(posixpath.dirname(key) for key in keys):
        try:
            present.update(posixpath.join(folder, name) for name in os.listdir(root / folder))
        except (FileNotFoundError, NotADirectoryError):
            continue  # its images are reported as missing
        except OSError as error:
            raise InvalidInput(f"{str(root / folder)!r} cannot be read: {error.strerror}. Allow reading it.") from error
    return present.intersection(keys)


def counts_of(train: tuple[int, int], test: tuple[int, int]) -> dict[str, int]:
    """Return the counts of two halves, each given as its numbers of classes and images."""
    names = ("training classes", "test classes", "training images", "test images")
    return dict(zip(names, (train[0], test[0], train[1], test[1]), strict=True))


def _only(half: Classes, present: set[str]) -> Classes:
    kept = {name: tuple(key for key in keys if key in present) for name, keys in half.items()}
    return {name: keys for name, keys in kept.items() if keys}


@dataclass(frozen=True, kw_only=True)
class PublishedDataset(RootedDataset):
    """Data set defined by published lists, which alone are opened. Listed images must exist, and counts must match.

    With ``subset``, missing images are left out and counts are not checked.
    """

    title: ClassVar[str]
    lists: ClassVar[tuple[str, ...]]
    """The files and folders below ``root`` that :meth:`_listed` reads."""
    published: ClassVar[Counts]
    """The accepted numbers, by the keys of :meth:`_counts`."""

    subset: bool = field(
        default=False,
        metadata={"about": "true: root holds only a part on purpose; missing images are left out, counts not checked"},
    )

    @abstractmethod
    def _listed(self) -> Halves:
        """Return all classes and images on the lists, whether they exist or not; any error means a damaged list."""

    def _counts(self, halves: Halves) -> dict[str, int]:
        train, test = ((len(half), sum(map(len, half.values()))) for half in halves)
        return {**counts_of(train, test), "images": train[1] + test[1]}

    @cached_property
    def _halves(self) -> Halves:
        try:
            return self._read_halves()
        except InvalidInput as error:
            lists = [path for path in map(self._root.joinpath, self.lists) if path.is_file()]
            away = [path.name for path in lists if not path.resolve().is_relative_to(self._root.resolve())]
            if not away:
                raise
            raise InvalidInput(
                f"{self.title} in {str(self.root)!r} is damaged. It is not shown how, since {listed(away)} links to a "
                "file outside of that folder; put the published file in its place."
            ) from error

    def _read_halves(self) -> Halves:
        root = str(self.root)
        if missing := [name for name in self.lists if not os.path.exists(self._root / name)]:
            lacking = f"{root!r}, which lacks {listed(missing)} of {self.title}"
            raise InvalidInput(f"dataset.root is {lacking}. Give the folder that holds them, or unpack it again.")
        try:
            train, test = self._listed()
        except InvalidInput:
            raise
        except Exception as error:  # a damaged list may hold anything
            raise InvalidInput(
                f"{listed(self.lists)} in {root!r}: damaged or not of {self.title} ({type(error).__name__}: {error}). "
                "Restore the published files."
            ) from error
        if both := [name for name in train if name in test]:
            which = f"{counted(len(both), 'class', 'classes')} of {self.title} in {root!r}"
            what = f"listed both for training and for test: {listed(both)}"
            raise InvalidInput(f"{which} {what}. Restore the published lists.")
        keys = [key for half in (train, test) for images in half.values() for key in images]
        if not keys:
            raise InvalidInput(f"{self.title} in {root!r} has no image. Unpack the data set again.")
        bad = {
            f"outside of {root!r}": [key for key in keys if is_outside(key)],
            f"in {root!r} listed more than once": [key for key, count in Counter(keys).items() if count > 1],
        }
        raise_if_any(
            [
                f"{counted(len(names), 'image')} of {self.title} {what}: {listed(names, shown=5)}. Restore the "
                "published lists."
                for what, names in bad.items()
                if names
            ]
        )
        present = present_below(self._root, keys)
        if self.subset and present:
            return _only(train, present), _only(test, present)
        sentences = []
        found = {} if self.subset else self._counts((train, test))
        if wrong := [
            f"{found[what]:,} {what} (published: {' or '.join(f'{number:,}' for number in right)})"
            for what, number in self.published.items()
            for right in [number if isinstance(number, tuple) else (number,)]
            if found and found[what] not in right
        ]:
            sentences.append(
                f"{self.title} in {root!r} has {', '.join(wrong)}. Restore the published files{ON_PURPOSE}"
            )
        if absent := [key for key in keys if key not in present]:
            sentences.append(
                f"{len(absent):,} of the {len(keys):,} listed images of {self.title} missing in {root!r}: "
                f"{listed(absent, shown=5)}. Unpack the data set again{'.' if self.subset else ON_PURPOSE}"
            )
        raise_if_any(sentences)
        return train, test

    def _rows(self, name: str, form: str, *, numbered: bool = False) -> list[list[str]]:
        """Split the lines of a list file into the fields named by ``form``, skipping a heading with these names."""
        lines, heading = read_list(self._root / name), form.split()
        rows = [line.split() for line in lines]
        if numbered and rows and len(rows[0]) == 1:  # the number of the other lines
            rows[0] = []
        wrong = [number for number, row in enumerate(rows, start=1) if row and len(row) != len(heading)]
        if wrong:
            raise InvalidInput(
                f"{len(wrong)} of {counted(len(lines), 'line')} of {name} in {str(self.root)!r} not of the form "
                f"`{form}`: line {wrong[0]} is {lines[wrong[0] - 1]!r:.80}. Restore the published file."
            )
        return [row for row in rows if row and row != heading]

    def _table(self, name: str, form: str) -> dict[str, str]:
        """Map the first field of each row of a list file to the second; the first must be unique."""
        rows = self._rows(name, form)
        if doubled := [first for first, count in Counter(first for first, _ in rows).items() if count > 1]:
            what = f"repeats {counted(len(doubled), form.split()[0])}: {listed(doubled, shown=5)}"
            raise InvalidInput(f"{name} in {str(self.root)!r} {what}. Restore the published file.")
        return dict(rows)

    def classes(self) -> Classes:
        """Map class names to paths relative to ``root``; the training half comes first."""
        train, test = self._halves
        return {**train, **test}

    def published_split(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        train, test = self._halves
        return tuple(train), tuple(test)

    def identity(self) -> str:
        if not self.subset:
            return self.title
        keys = sorted(key for keys in self.classes().values() for key in keys)
        digest = digest_of("\n".join(keys).encode(errors="surrogateescape"))
        return f"a part of {self.title}: {len(keys)} images, {digest[:12]}"
