"""A data set as its authors published it: lists of images in two halves of classes, and counts that must be right."""

import hashlib
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from trainables.data.dataset import listed
from trainables.data.sets.folders import RootedDataset
from trainables.mistakes import Mistakes, raise_if_any

FEW = 5
ON_PURPOSE = ", or set dataset.subset to true if root holds a part on purpose."

Classes = dict[str, tuple[str, ...]]
Halves = tuple[Classes, Classes]  # of the training classes and of the test classes


def grouped(pairs: Iterable[tuple[str, str]]) -> Classes:
    """Pairs of class name and image key, by class, in the order in which they are met."""
    classes: dict[str, list[str]] = {}
    for name, key in pairs:
        classes.setdefault(name, []).append(key)
    return {name: tuple(keys) for name, keys in classes.items()}


def read_list(path: Path) -> list[str]:
    """The lines of a text file."""
    if os.path.exists(path) and not (path.is_file() or path.is_dir()):
        raise Mistakes(
            f"{str(path)!r} cannot be read: it is no file. Give a readable file."
        )  # a pipe would be waited for
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()  # some editors begin a text with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise Mistakes(f"{str(path)!r} cannot be read: {reason}. Give a readable file.") from error


def halved(classes: Classes) -> Halves:
    """The first half of the classes and the rest."""
    names, middle = list(classes), len(classes) // 2
    return {name: classes[name] for name in names[:middle]}, {name: classes[name] for name in names[middle:]}


def counted(halves: Halves) -> dict[str, int]:
    """How many classes and images there are."""
    train, test = ([len(keys) for keys in half.values()] for half in halves)
    return {
        "training classes": len(train),
        "test classes": len(test),
        "training images": sum(train),
        "test images": sum(test),
        "images": sum(train) + sum(test),
    }


def _only(half: Classes, present: set[str]) -> Classes:
    kept = {name: tuple(key for key in keys if key in present) for name, keys in half.items()}
    return {name: keys for name, keys in kept.items() if keys}


@dataclass(frozen=True, kw_only=True)
class PublishedDataset(RootedDataset):
    """What is listed must be there, and be as much as was published, unless ``subset`` says that a part is meant.

    Nothing is opened but the lists, which are read once an instance; of the images, each folder is listed once.
    """

    title: ClassVar[str]

    subset: bool = field(
        default=False,
        metadata={"about": "true: root holds a part on purpose; absent images are left out and counts not checked"},
    )

    @abstractmethod
    def _needed(self) -> tuple[str, ...]:
        """The files and folders below ``root`` that :meth:`_listed` reads."""

    @abstractmethod
    def _listed(self) -> Halves:
        """All that the lists name, whether it is there or not."""

    @abstractmethod
    def _published(self) -> Mapping[str, tuple[int, ...]]:
        """What is counted (as in :meth:`_counts`) → the numbers that are right."""

    def _counts(self, halves: Halves) -> dict[str, int]:
        """What there is, by what is counted."""
        return counted(halves)

    @cached_property
    def _halves(self) -> Halves:
        root = str(self.root)
        needed = {name: self._root / name for name in self._needed()}
        if missing := [name for name, path in needed.items() if not os.path.exists(path)]:
            raise Mistakes(
                f"dataset.root is {root!r}, which lacks {listed(missing)} of {self.title}. "
                "Give the folder that holds them, or unpack the data set again."
            )
        if odd := [name for name, path in needed.items() if not (path.is_file() or path.is_dir())]:
            raise Mistakes(f"{listed(odd)} of {self.title} in {root!r} is no file. Unpack the data set again.")
        train, test = self._listed()
        if both := [name for name in train if name in test]:
            raise Mistakes(
                f"{len(both)} classes of {self.title} in {root!r} are listed for training and for test: "
                f"{listed(both)}. Restore the published lists."
            )
        keys = [key for half in (train, test) for images in half.values() for key in images]
        if not keys:
            raise Mistakes(f"{self.title} in {root!r} has no image. Unpack the data set again.")
        raise_if_any(list(self._key_mistakes(keys)))
        present = self._present(keys)
        if self.subset and present:
            return _only(train, present), _only(test, present)
        sentences = [] if self.subset else self._miscounts((train, test))
        if absent := [key for key in keys if key not in present]:
            sentences.append(
                f"{len(absent):,} of the {len(keys):,} listed images of {self.title} are not in {root!r}: "
                f"{listed(absent, shown=FEW)}. Unpack the data set again{'.' if self.subset else ON_PURPOSE}"
            )
        raise_if_any(sentences)
        return train, test

    def _key_mistakes(self, keys: Sequence[str]) -> Iterator[str]:
        """A key names one image below ``root``, of one class."""
        if outside := [key for key in keys if key.startswith("/") or ".." in key.split("/") or "\0" in key]:
            yield (
                f"{len(outside)} listed images of {self.title} do not lie below {str(self.root)!r}: "
                f"{listed(outside, shown=FEW)}. Restore the published lists."
            )
        if doubled := [key for key, count in Counter(keys).items() if count > 1]:
            yield (
                f"{len(doubled)} images of {self.title} in {str(self.root)!r} are listed more than once: "
                f"{listed(doubled, shown=FEW)}. Restore the published lists."
            )

    def _present(self, keys: Sequence[str]) -> set[str]:
        """Those of ``keys`` that are on disk, by one look into each folder."""
        present: set[str] = set()
        for folder in dict.fromkeys(key.rpartition("/")[0] for key in keys):
            try:
                present.update(f"{folder}/{name}" for name in os.listdir(self._root / folder))
            except (FileNotFoundError, NotADirectoryError):
                continue  # its images are absent, and reported as such
            except OSError as error:
                raise Mistakes(f"{str(self._root / folder)!r} cannot be read: {error.strerror}.") from error
        return present.intersection(keys)

    def _miscounts(self, halves: Halves) -> list[str]:
        found = self._counts(halves)
        wrong = [
            f"{found[what]:,} {what} (published: {' or '.join(f'{number:,}' for number in right)})"
            for what, right in self._published().items()
            if found[what] not in right
        ]
        if not wrong:
            return []
        return [f"{self.title} in {str(self.root)!r} has {', '.join(wrong)}. Restore the published files{ON_PURPOSE}"]

    def _rows(self, name: str, form: str) -> list[list[str]]:
        """The lines of a list file, split into the fields that ``form`` names; a line of these names is a heading."""
        lines = read_list(self._root / name)
        heading = form.split()
        rows = [line.split() for line in lines]
        wrong = [number for number, row in enumerate(rows, start=1) if row and len(row) != len(heading)]
        if wrong:
            raise Mistakes(
                f"{len(wrong)} of the {len(lines)} lines of {name} in {str(self.root)!r} are not `{form}`: "
                f"line {wrong[0]} is {lines[wrong[0] - 1]!r:.80}. Restore the published file."
            )
        return [row for row in rows if row and row != heading]

    def _table(self, name: str, form: str) -> dict[str, str]:
        """The rows of a list file of two fields, the second by the first, of which none may come twice."""
        rows = self._rows(name, form)
        if doubled := [first for first, count in Counter(first for first, _ in rows).items() if count > 1]:
            raise Mistakes(
                f"{len(doubled)} lines of {name} in {str(self.root)!r} have a {form.split()[0]} that came before: "
                f"{listed(doubled, shown=FEW)}. Restore the published file."
            )
        return dict(rows)

    def classes(self) -> Classes:
        """Class name → paths below ``root``; the training half comes first.

        Raises:
            Mistakes: files, images or classes that are missing, or counts other than the published ones.
        """
        train, test = self._halves
        return {**train, **test}

    def published_split(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        train, test = self._halves
        return tuple(train), tuple(test)

    def identity(self) -> str:
        if not self.subset:
            return self.title
        keys = sorted(key for keys in self.classes().values() for key in keys)
        digest = hashlib.sha256("\n".join(keys).encode(errors="surrogateescape")).hexdigest()
        return f"a part of {self.title}: {len(keys)} images, {digest[:12]}"
