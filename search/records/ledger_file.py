"""A file of the ledger of test openings, and the images of the opened test sets in a folder next to it.

Lines are only appended. Each holds the digest of the line before it, so that a line that is changed, removed or moved
breaks the chain. There are two files, in the runs folder and in the user's state folder, with chains of their own: a
line that is copied from one to the other keeps its content and gets another previous one.

Shapes: N images, C classes.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any

import filelock
import numpy as np
from numpy.typing import NDArray

from trainables.common.errors import InvalidInput
from trainables.common.files import digest_of, json_digest, reading, remove_drafts, write_whole
from trainables.common.storage import full_disk_errors
from trainables.data.store.contents import digests_by_class, read_contents

Entry = Mapping[str, Any]
"""The content of a line, without its place in the chain."""

CHAIN = ("previous", "sha256")
"""The keys of a line that chain it: the digest of the line before (null in the first), and its own."""

FIXES = "restore the file from a copy, or ask who sent it for one"


@dataclass(frozen=True)
class LedgerFile:
    """The ledger in the file at ``path``, which need not exist."""

    path: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with full_disk_errors(self.path), filelock.FileLock(f"{self.path}.lock"):
            yield

    # Lines

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines with their places in the chain."""
        if not self.path.exists():
            return []
        if not self.path.is_file():
            raise InvalidInput(f"The ledger of test openings, {self.path}, is not a regular file; restore it.")
        lines = []
        for number, text in enumerate(self.path.read_bytes().splitlines(), start=1):
            with reading(f"Line {number} of the ledger of test openings, {self.path}", "restore it"):
                lines.append(json.loads(text))
                _ = [lines[-1][key] for key in CHAIN]
        return lines

    def entries(self) -> dict[str, Entry]:
        """Return the entries in the order of the lines, by the digests of their contents; raise if one is damaged."""
        contents = [{key: value for key, value in line.items() if key not in CHAIN} for line in self.lines()]
        return {json_digest(content): content for content in contents}

    def broken_links(self) -> Iterator[str]:
        """Yield a sentence for each line that is not the one that was written after the line before it."""
        before = None
        for number, line in enumerate(self.lines(), start=1):
            if line["sha256"] != json_digest({key: value for key, value in line.items() if key != "sha256"}):
                yield f"Line {number} of the ledger of test openings, {self.path}, was changed; {FIXES}."
            if line["previous"] != before:
                yield (
                    f"Line {number} of the ledger of test openings, {self.path}, was not written after the line before "
                    f"it: a line was removed, moved or changed; {FIXES}."
                )
            before = line["sha256"]

    def append(self, entries: Sequence[Entry], content_of: Callable[[str], bytes | None]) -> None:
        """Append ``entries``, all of them or, if the disk fills up, none; the file must be locked.

        Before that, the files of images that they name are written with their content ``content_of(name)``.
        """
        for name in [entry["file"] for entry in entries if "file" in entry]:
            path = self.path_of_images(name)
            if not path.exists() and (content := content_of(name)):
                remove_drafts(path.parent)  # of killed writers, which held the lock
                write_whole(path, methodcaller("write", content))
        if not entries:
            return
        lines = self.lines()
        before = lines[-1]["sha256"] if lines else None
        text = ""
        for entry in entries:
            line = {**entry, "previous": before}
            before = json_digest(line)
            text += json.dumps({**line, "sha256": before}) + "\n"
        with full_disk_errors(self.path), self.path.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                left = memoryview(text.encode())
                while left:  # a write to an almost full disk may be partial
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)  # half a line would be a damaged ledger
                raise

    # Images

    def path_of_images(self, name: str) -> Path:
        """Return the path of the file ``name`` of a test set's images."""
        return self.path.with_name(f"{self.path.stem}.images") / name

    def images(self, name: str) -> bytes | None:
        """Return the content of the file ``name`` of a test set's images; None if it is missing or damaged."""
        path = self.path_of_images(name)
        content = path.read_bytes() if path.is_file() else b""
        return content if digest_of(content) == name else None


# The images of a test set by their content, so that it is recognised whatever its names, order and file formats. All
# images are kept, with 8 bytes each.

_STORED = np.dtype("<u8")


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """The images of some classes, class after class, without names; equal images give equal sets.

    Attributes:
        sizes_C: the number of images of each class.
        digests_N: the digests of the images' pixels, ascending within a class.
    """

    sizes_C: NDArray[np.uint64]
    digests_N: NDArray[np.uint64]

    @classmethod
    def of(cls, images: Iterable[Iterable[str]]) -> "ImageSet":
        """Return the set of the classes ``images``, whose images are hexadecimal digests of pixels."""
        classes = sorted(sorted(int(digest, 16) for digest in of_class) for of_class in images)
        digests_N = np.array([digest for of_class in classes for digest in of_class], dtype=_STORED)
        return cls(sizes_C=np.array([len(of_class) for of_class in classes], dtype=_STORED), digests_N=digests_N)

    def __len__(self) -> int:
        return len(self.digests_N)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 (hex) of all images' pixels, grouped by class."""
        return digest_of(self.sizes_C.tobytes() + self.digests_N.tobytes())

    @cached_property
    def copies(self) -> int:
        """The number of images whose pixels another image of the set has, too."""
        _, times = np.unique(self.digests_N, return_counts=True)
        return int(times[times > 1].sum())

    def known_images(self, other: "ImageSet") -> NDArray[np.bool_]:
        """Return for each image if ``other`` has it."""
        return np.isin(self.digests_N, other.digests_N)

    def to_bytes(self) -> bytes:
        """Return the content of its file: the number of classes, then the two arrays, as little-endian integers."""
        arrays = (np.array([len(self.sizes_C)]), self.sizes_C, self.digests_N)
        return b"".join(array.astype(_STORED).tobytes() for array in arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> "ImageSet":
        """Return the set that :meth:`to_bytes` wrote, or an earlier version, with another number for each image.

        Raises:
            ValueError: the content is of another length.
        """
        numbers = np.frombuffer(content, dtype=_STORED)
        classes = int(numbers[0]) if len(numbers) else 0
        sizes_C, images = numbers[1 : 1 + classes], numbers[1 + classes :]
        count = int(sizes_C.sum())
        if len(images) not in (count, 2 * count):
            raise ValueError(f"{len(images)} numbers for {count} images")
        return cls(sizes_C=sizes_C, digests_N=images[:count])


def images_in(store: Path) -> ImageSet:
    """Return the images of the store at ``store``."""
    contents = read_contents(store)
    return ImageSet.of(digests_by_class(contents).values())
