"""A data set listed in a CSV file: images with their classes, groups, official parts and cameras."""

import csv
import io
import os
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from trainables.common.errors import InvalidInput, counted, listed, raise_if_any, suggestion
from trainables.data.dataset import ListedDataset, grouped, part_mistakes, sorted_classes
from trainables.data.sets.folders import Folders, RootedDataset, check_file
from trainables.data.sets.published import Classes, is_outside, present_below, read_text

PATH, CLASS, GROUP, PART, CAMERA = COLUMNS = ("path", "class", "group", "part", "camera")


@dataclass(frozen=True, kw_only=True)
class Manifest(ListedDataset, RootedDataset):
    """Images of a CSV file, in its order; classes are sorted by name, whole numbers by size.

    With rows of part ``train`` their classes are the training half and all others the test half. Without them the
    halves are those of a folder, and the validation ranks its queries against its gallery as the test does.
    """

    summary: ClassVar[str] = "images listed in a CSV file, with groups, official queries and galleries, cameras"
    publisher: ClassVar[str] = "your own data"
    layout: ClassVar[str] = """\
path,class,group,part,camera
shoes/1.jpg,red shoe,shop 7,query,2
the last three columns only if you have them"""

    file: str | os.PathLike[str] | None = field(default=None, metadata={"about": "a CSV file with these columns"})
    root: str | os.PathLike[str] | None = field(
        default=None, metadata={"about": "the folder to which paths are relative; by default that of the file"}
    )
    ignore_same_camera: bool = field(
        default=False, metadata={"about": "true: a query ignores the images of its class that its camera took"}
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", check_file(self.file, "a CSV file of images"))
        if self.root is not None:
            super().__post_init__()

    @cached_property
    def _root(self) -> Path:
        assert self.file is not None
        return Path(self.root or Path(self.file).parent)

    @cached_property
    def _rows(self) -> dict[str, dict[str, str]]:
        """The rows by image key."""
        rows = _read(Path(str(self.file)))
        keys = self._keys([row[PATH] for row in rows])
        sentences = [*self._key_mistakes(keys), *part_mistakes([(row[CLASS], row.get(PART, "")) for row in rows])]
        if self.ignore_same_camera and CAMERA not in rows[0]:
            sentences.append(f"no column {CAMERA}; add it, or set dataset.ignore_same_camera to false.")
        raise_if_any([f"dataset.file is {str(self.file)!r}: {sentence}" for sentence in sentences])
        return dict(zip(keys, rows, strict=True))

    def _keys(self, paths: Sequence[str]) -> list[str]:
        """Return the paths relative to the root, as they are on the disk where they can mean only one file."""
        root, resolved = os.path.abspath(self._root), os.path.realpath(self._root)
        keys = [posixpath.normpath(path) for path in paths]
        for row, key in enumerate(keys):
            for top in (root, resolved) if key.startswith("/") else ():
                if key.startswith(f"{top}/"):
                    keys[row] = key[len(top) + 1 :]
        present, folders = present_below(self._root, [key for key in keys if not is_outside(key)]), Folders()
        return [key if key in present or is_outside(key) else folders.meant(self._root, key) or key for key in keys]

    def _key_mistakes(self, keys: Sequence[str]) -> Iterator[str]:
        if outside := [key for key in keys if is_outside(key)]:
            what = f"{counted(len(outside), 'path')} outside of {str(self._root)!r}"
            yield f"{what}: {listed(outside, shown=3)}; give paths below dataset.root."
        elif doubled := [key for key, count in Counter(keys).items() if count > 1]:
            yield f"{counted(len(doubled), 'path')} more than once: {listed(doubled, shown=3)}; keep one row each."
        else:
            present = present_below(self._root, keys)
            if missing := [key for key in keys if key not in present]:
                what = f"{len(missing):,} of the {len(keys):,} images are missing in {str(self._root)!r}"
                yield f"{what}, the first is {listed(missing[:1])}; restore them, or correct dataset.root."

    def classes(self) -> Classes:
        """Map class names to paths relative to the root."""
        found = grouped((row[CLASS], key) for key, row in self._rows.items())
        return {name: found[name] for name in sorted_classes(found)}

    def cameras(self) -> dict[str, str]:
        return self.column(CAMERA) if self.ignore_same_camera else {}

    def column(self, name: str) -> dict[str, str]:
        return {key: row[name] for key, row in self._rows.items() if name in row}

    def identity(self) -> str:
        return "manifest"


def is_manifest(path: str | os.PathLike[str]) -> bool:
    """Return True if the suffix of ``path`` is that of a CSV file."""
    return Path(path).suffix.lower() == ".csv"


def _read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file by column, without the spaces around cells."""
    said = f"dataset.file is {str(path)!r}"
    try:
        lines = [*csv.reader(io.StringIO(read_text(path), newline=""), strict=True)]
    except csv.Error as error:
        raise InvalidInput(f"{said}, which is not a readable CSV file ({error}); write it again.") from error
    if not lines:
        raise InvalidInput(f"{said}, which is empty; its first line names the columns {', '.join(COLUMNS)}.")
    nameless = not lines[0][0].strip() if lines[0] else False  # the index that pandas writes
    columns, *rest = [line[1:] if nameless else line for line in lines]
    columns = [name.strip() for name in columns]
    rows = [(number, row) for number, row in enumerate(rest, start=2) if row]
    sentences = []
    if missing := [name for name in (PATH, CLASS) if name not in columns]:
        sentences.append(f"{said}, which has no column {' and no column '.join(missing)}; it has {listed(columns)}.")
    if unknown := [name for name in columns if name not in COLUMNS]:
        sentences.append(
            f"{said}, which has the unknown column {listed(unknown)}{suggestion(unknown[0], COLUMNS)}; the columns are "
            f"{', '.join(COLUMNS)}."
        )
    if repeated := [name for name, count in Counter(columns).items() if count > 1]:
        sentences.append(f"{said}, which has the column {listed(repeated)} more than once; keep one.")
    if uneven := [number for number, row in rows if len(row) != len(columns)]:
        sentences.append(
            f"{said}, in which {counted(len(uneven), 'line')} have another number of cells than the first line, which "
            f"has {len(columns)}; the first is line {uneven[0]}."
        )
    if not rows:
        sentences.append(f"{said}, which has no row; give one for each image.")
    raise_if_any(sentences)
    found = [{name: cell.strip() for name, cell in zip(columns, row, strict=True)} for _, row in rows]
    for name in columns:
        if empty := [number for number, row in enumerate(found, start=1) if not row[name]]:
            what = f"{counted(len(empty), 'cell')} of the column {name} empty, the first in row {empty[0]}"
            sentences.append(f"{said}: {what}; fill them.")
    if len(names := {row[CLASS] for row in found}) == 1:
        what = f"all {len(found):,} rows are of one class, {listed([*names])}"
        sentences.append(f"{said}: {what}; give the images of at least eight classes.")
    raise_if_any(sentences)
    return found
