"""Files of embeddings that somebody has computed, and the data set of one: ``.npz``, ``.parquet``, ``.safetensors``.

All have the same names: ``embeddings`` [N, F] and ``labels`` [N], and optionally ``ids``, ``paths``, ``groups`` and
``parts``, each [N]. Parquet has them as columns, with a list of F numbers in a row. A safetensors file has tensors, and
lists of text as JSON in its metadata. Nothing in a file is executed.

Legend: N items; F features.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables.common.errors import InvalidInput, counted, listed, raise_if_any, shaped, shortened, suggestion
from trainables.common.files import DAMAGED, array_names, read_arrays
from trainables.data.dataset import ListedDataset, grouped, part_mistakes, sorted_classes
from trainables.data.images import read_image
from trainables.data.sets.folders import as_on_disk, check_file
from trainables.data.store.contents import image_digest

NAMES = (EMBEDDINGS, LABELS, IDS, PATHS, GROUPS, PARTS) = ("embeddings", "labels", "ids", "paths", "groups", "parts")
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureArrays:
    """The content of a file: float32 ``embeddings_NF``, and text for each item, or None if the file has none."""

    embeddings_NF: NDArray[np.float32]
    labels: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    parts: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the items are called: their ids, else their paths, else their row numbers."""
        return self.ids or self.paths or tuple(f"row {row}" for row in range(len(self.embeddings_NF)))

    @cached_property
    def row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The names of the items of each class."""
        found = grouped(zip(self.labels or (), self.names))
        return {label: found[label] for label in sorted_classes(found)}


def is_feature_file(path: str | os.PathLike[str]) -> bool:
    """Return True if the suffix of ``path`` is that of a file of embeddings."""
    return Path(path).suffix.lower() in _READERS


def read_features(path: Path, *, key: str = "") -> FeatureArrays:
    """Read the file at ``path``; the errors begin with ``key``, where the user named it, such as ``dataset.file``.

    Raises:
        InvalidInput: it cannot be read, or is no file of embeddings; all that is wrong with its content.
    """
    said = f"{key} is {str(path)!r}" if key else str(path)
    path, suffix = as_on_disk(path), _known_suffix(path, said)
    try:
        arrays = _READERS[suffix](path)
    except FileNotFoundError:
        raise InvalidInput(f"{said}, which does not exist; give a file of embeddings.") from None
    except OSError as error:
        raise InvalidInput(f"{said}, which cannot be read ({error.strerror or error}).") from error
    except InvalidInput as error:
        raise InvalidInput([f"{said}: {sentence}" for sentence in error.sentences]) from error
    except DAMAGED as error:
        raise InvalidInput(f"{said}, which is not a readable {suffix} file ({error}); write it again.") from error
    raise_if_any([f"{said}: {sentence}" for sentence in _mistakes(arrays)])
    texts = {name: tuple(str(_whole(entry)) for entry in arrays[name].tolist()) for name in NAMES[1:] if name in arrays}
    return FeatureArrays(embeddings_NF=np.ascontiguousarray(arrays[EMBEDDINGS], dtype=np.float32), **texts)


def _known_suffix(path: str | os.PathLike[str], said: str) -> str:
    if (suffix := Path(path).suffix.lower()) not in _READERS:
        hint = suggestion(suffix, _READERS)
        raise InvalidInput(f"{said}; the suffix sets the format and must be one of {', '.join(_READERS)}{hint}.")
    return suffix


def _read_parquet(path: Path) -> Arrays:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            table = file.read([name for name in NAMES if name in file.schema_arrow.names])
        return {name: _of_column(name, table.column(name)) for name in table.column_names}
    except pyarrow.ArrowException as error:
        if row := re.match(r"Expected all lists to be of size=\d+ but index (\d+) had size=0", str(error)):
            raise InvalidInput(_empty(EMBEDDINGS, [int(row[1]) - 1])) from error  # pyarrow counts from 1
        raise ValueError(str(error).partition("\n")[0]) from error


def _of_column(name: str, column: Any) -> NDArray[Any]:
    import pyarrow.compute

    types = pyarrow.types
    if name != EMBEDDINGS:
        return column.to_numpy() if types.is_floating(column.type) else _of_list(column.to_pylist())
    if not (types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)):
        raise InvalidInput(f"{name} is a column of {column.type}; write lists of numbers.")
    if empty := np.flatnonzero(column.is_null()).tolist():
        raise InvalidInput(_empty(name, empty))
    lengths = pyarrow.compute.unique(pyarrow.compute.list_value_length(column)).to_pylist()
    if len(lengths) > 1:
        raise InvalidInput(f"{name} has rows of {min(lengths)} to {max(lengths)} numbers; give each row as many.")
    flat = pyarrow.compute.list_flatten(column)
    if empty := sorted({entry // lengths[0] for entry in np.flatnonzero(flat.is_null()).tolist()}):
        raise InvalidInput(_empty(name, empty))
    return flat.to_numpy().reshape(len(column), *lengths) if lengths else np.empty((0, 0), np.float32)


def _of_list(entries: list[Any]) -> NDArray[Any]:
    return np.array([*entries, None], dtype=object)[:-1]  # in which a list is one entry


def _of_json(name: str, text: str) -> NDArray[Any]:
    """Return the array of a list in a safetensors file's metadata."""
    entries = None
    with suppress(ValueError):
        entries = json.loads(text)
    if not isinstance(entries, list):
        raise InvalidInput(f"{name} in the metadata must be a list in JSON; it is {shortened(text)}; use json.dumps.")
    return _of_list(entries)


def _read_safetensors(path: Path) -> Arrays:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            known, written = {*file.keys()}, file.metadata() or {}
            twice = [name for name in NAMES if name in known & written.keys()]
            raise_if_any([f"{name} is a tensor and in the metadata; keep one of them." for name in twice])
            lists = {name: _of_json(name, text) for name, text in written.items() if name in NAMES[1:]}
            kinds = {name: file.get_slice(name).get_dtype() for name in NAMES if name in known}
            short = [name for name, kind in kinds.items() if kind in ("BF16", "F8_E4M3", "F8_E5M2")]  # not in NumPy
            arrays = {name: file.get_tensor(name) for name in kinds if name not in short}
        if odd := [name for name in short if name != EMBEDDINGS]:
            rounds = f"{odd[0]} are {kinds[odd[0]]}, which rounds whole numbers"
            raise InvalidInput(f"{rounds}; write them as integers or text.")
        if short:
            with safe_open(path, framework="pt") as file:
                arrays[EMBEDDINGS] = file.get_tensor(EMBEDDINGS).float().numpy()
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return {**lists, **arrays}


_READERS: dict[str, Callable[[Path], Arrays]] = {
    ".npz": lambda path: read_arrays(path, *(name for name in NAMES if name in array_names(path))),
    ".parquet": _read_parquet,
    ".safetensors": _read_safetensors,
}
SUFFIXES = tuple(_READERS)


def _mistakes(arrays: Arrays) -> Iterator[str]:
    if EMBEDDINGS not in arrays:
        found = f"it has {', '.join(arrays)}" if arrays else f"it has none of {', '.join(NAMES)}"
        yield f"there are no {EMBEDDINGS}; {found}."
        return
    embeddings = arrays[EMBEDDINGS]
    if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu" or not embeddings.size:
        found = f"they are {embeddings.dtype} of {shaped(embeddings.shape)}"
        yield f"{EMBEDDINGS} must be numbers, items × features; {found}."
        return
    with np.errstate(over="ignore"):
        largest_N = np.abs(embeddings.astype(np.float32, copy=False)).max(axis=1)
    for bad_N, what, reason in (
        (~np.isfinite(largest_N), "numbers that are not finite", "float32 cannot hold them"),
        (largest_N == 0, "zeros only", "a vector of zeros has no direction"),
    ):
        if rows := np.flatnonzero(bad_N).tolist():
            found = f"{counted(len(rows), 'row')} of {EMBEDDINGS} with {what} ({_rows(rows)})"
            yield f"{found}: {reason}; correct or remove."
    for name in NAMES[1:]:
        if name in arrays:
            yield from _column_mistakes(name, arrays[name], len(embeddings))


def _column_mistakes(name: str, values: NDArray[Any], count: int) -> Iterator[str]:
    if values.ndim != 1:
        yield f"{name} must be one text or whole number for each item; they are {shaped(values.shape)}."
        return
    entries = [*values] if values.dtype.kind in "mM" else values.tolist()  # in which nanoseconds are whole numbers
    if len(values) != count:
        yield f"there are {count:,} {EMBEDDINGS} and {len(values):,} {name}; give one for each."
    elif empty := [row for row, entry in enumerate(entries) if entry is None or entry == "" or entry != entry]:
        yield _empty(name, empty)
    elif odd := [entry for entry in entries if not isinstance(_whole(entry), int | str)]:
        yield f"{name} must be text or whole numbers; one is {shortened(repr(odd[0]))}; write them as text."
    elif name in (IDS, PATHS) and (twice := [entry for entry, times in Counter(entries).items() if times > 1]):
        yield f"{counted(len(twice), 'entry', 'entries')} of {name} more than once: {listed([*map(str, twice)])}."
    floats = np.array([entry for entry in entries if isinstance(entry, float)])
    # From this size on, neighbouring whole numbers are equal in their type.
    least = 2 / np.finfo(values.dtype if values.dtype.kind == "f" else float).eps
    if (large := floats[np.isfinite(floats) & (np.abs(floats) >= least)]).size:
        rounds = f"round whole numbers from {least:,.0f} on, such as {large[0]:.0f}, so different ones may be equal"
        yield f"{name} are floats that {rounds}; write them as whole numbers or text."


def _empty(name: str, rows: list[int]) -> str:
    what = counted(len(rows), "empty entry", "empty entries")
    return f"{name} has {what} ({_rows(rows)}); fill them in, or remove these items."


def _rows(rows: list[int]) -> str:
    return f"row {', '.join(map(str, rows[:5]))}{', …' if len(rows) > 5 else ''}"


def _whole(entry: object) -> object:
    """Return a number such as 3.0, of which libraries make 3 where an entry is missing, as 3."""
    return int(entry) if isinstance(entry, float) and entry.is_integer() else entry


@dataclass(frozen=True, kw_only=True)
class FeatureFile(ListedDataset):
    """Items of a file of embeddings, in its order; classes are sorted by name, whole numbers by size.

    Keys are the ids of the file, or its row numbers. If it has paths of images, they are relative to ``root``.
    """

    summary: ClassVar[str] = "embeddings of anything: images, texts, sounds, rows of a table"
    publisher: ClassVar[str] = "your own data"
    layout: ClassVar[str] = """\
embeddings  items × features
labels      text or whole numbers
ids, paths, groups  if you have them
parts       train, query, gallery or distractor, if these are given"""

    file: str | os.PathLike[str] | None = field(
        default=None, metadata={"about": f"a file ({', '.join(SUFFIXES)}) with these arrays"}
    )
    root: str | os.PathLike[str] | None = field(
        default=None, metadata={"about": "the folder to which paths are relative; by default that of the file"}
    )

    def __post_init__(self) -> None:
        if self.file is not None:
            _known_suffix(self.file, f"dataset.file is {str(self.file)!r}")
        object.__setattr__(self, "file", check_file(self.file, "a file of embeddings"))

    def _content(self) -> FeatureArrays:
        path = Path(str(self.file))
        status = path.stat()
        return _content(path, status.st_mtime_ns, status.st_size)

    def features(self) -> int:
        return self._content().embeddings_NF.shape[1]

    def classes(self) -> dict[str, tuple[str, ...]]:
        return self._content().classes

    def column(self, name: str) -> dict[str, str]:
        arrays = self._content()
        values = {"group": arrays.groups, "part": arrays.parts}[name]
        return {} if values is None else dict(zip(arrays.names, values, strict=True))

    def identity(self) -> str:
        return "features"

    def stamp(self, key: str) -> str:
        return image_digest(self.read(key))  # of the content, so that a file may move or be written again

    def read(self, key: str) -> np.ndarray:
        arrays = self._content()
        return arrays.embeddings_NF[arrays.row_of[key]]

    def picture(self, key: str) -> np.ndarray | None:
        arrays = self._content()
        if arrays.paths is None:
            return None
        root = Path(self.root or Path(str(self.file)).parent).resolve()
        path = (root / arrays.paths[arrays.row_of[key]]).resolve()
        try:
            return read_image(path) if path.is_relative_to(root) else None
        except Exception:  # decoders raise anything; a report does without the picture
            return None


@lru_cache(maxsize=1)
def _content(path: Path, changed: int, size: int) -> FeatureArrays:
    """Read the file at ``path`` once per process, until it was ``changed`` or has another ``size``."""
    arrays = read_features(path, key="dataset.file")
    if arrays.labels is None:
        raise InvalidInput(f"dataset.file is {str(path)!r}, which has no {LABELS}; give a class for each embedding.")
    mistakes = part_mistakes([*zip(arrays.labels, arrays.parts, strict=True)]) if arrays.parts else ()
    raise_if_any([f"dataset.file is {str(path)!r}: {sentence}" for sentence in mistakes])
    return arrays
