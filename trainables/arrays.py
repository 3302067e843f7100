"""Arrays of numbers and text in NumPy's npz files, read without trusting what a file says about itself."""

import io
import math
import struct
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from numpy.lib import format as npy
from numpy.typing import NDArray

from trainables.files import regular

FREE = 64 * 2**20
RATIO = 100
"""Arrays may take :data:`FREE` bytes, or this many times the size of their file.

Compressed keys and histograms reach 30; the format allows 1000, with which a small file fills the memory."""

_KINDS = "biufU"
"""The kinds of ``numpy.dtype`` that are written: no objects, which would be unpickled, and no structures."""
_ERRORS = (SyntaxError, TokenError, MemoryError, RuntimeError, struct.error, zlib.error)
"""Exceptions in addition to those of damaged files that zipfile and NumPy raise."""


def read_arrays(source: Path | bytes, *names: str) -> dict[str, NDArray[Any]]:
    """Return the arrays ``names`` of the npz file at, or with the content, ``source``; by default all of them.

    Raises:
        OSError: it cannot be read.
        ValueError, LookupError, EOFError, BadZipFile: it is damaged, lacks an array, holds other types than numbers
            and text, or its arrays are larger than :data:`FREE` and :data:`RATIO` allow.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else _opened(source) as file:
        size = file.seek(0, io.SEEK_END)
        try:
            with ZipFile(file) as archive:
                found = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
                wanted = {name: found[name] for name in names or found}
                if any(entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for entry in wanted.values()):
                    raise ValueError("its compression is not the one that NumPy writes")
                if (total := sum(entry.file_size for entry in wanted.values())) > max(FREE, RATIO * size):
                    raise ValueError(f"its arrays would take {total:,} bytes, and the file has {size:,}")
                return {name: _array(name, _content(archive, entry)) for name, entry in wanted.items()}
        except _ERRORS as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def array_names(source: Path) -> set[str]:
    """Return the names of the arrays in the npz file at ``source``; errors as in :func:`read_arrays`."""
    try:
        with _opened(source) as file, ZipFile(file) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except _ERRORS as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _content(archive: ZipFile, entry: ZipInfo) -> bytes:
    """Return the bytes of ``entry``, at most as many as it claims: without a limit zipfile expands all of them."""
    with archive.open(entry) as file:
        return file.read(entry.file_size)


def _opened(path: Path) -> IO[bytes]:
    return regular(path).open("rb")


def _array(name: str, content: bytes) -> NDArray[Any]:
    """Return the array in the ``content`` of an npy file, which must be as long as its header says."""
    file = io.BytesIO(content)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("the version of an array's format is not 1.0")
    shape, _, dtype = npy.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError(f"{name:.40} has the dtype object, which is pickled; convert it, as in {name:.40}.astype(str)")
    if dtype.kind not in _KINDS or not dtype.itemsize:
        raise ValueError(f"{name:.40} has the type {dtype.str!r:.40}, which is neither numbers nor text; convert it")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"an array's header has the shape {shape!r:.40}, which its content has not")
    file.seek(0)
    array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array
