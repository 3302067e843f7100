"""Arrays of numbers and text in NumPy's npz files, from which nothing is unpickled."""

import io
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_arrays(source: Path | bytes, *names: str) -> dict[str, NDArray[Any]]:
    """Return the arrays ``names`` of the npz file at, or with the content, ``source``; by default all of them.

    Raises:
        OSError: it cannot be read.
        ValueError, LookupError, TypeError, EOFError, BadZipFile: it is damaged, lacks an array, or one holds objects.
    """
    with _opened(source) as file:
        arrays = {name: file[name] for name in names or file.files}
    if strange := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(f"{strange[0]:.40} is no array")
    return arrays


def array_names(source: Path) -> set[str]:
    """Return the names of the arrays in the npz file at ``source``; errors as in :func:`read_arrays`."""
    with _opened(source) as file:
        if twice := [name for name, times in Counter(file.files).items() if times > 1]:
            raise ValueError(f"it has {twice[0]:.40} twice")
        return set(file.files)


@contextmanager
def _opened(source: Path | bytes) -> Iterator[Any]:
    try:
        content = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
        with content:
            file = np.load(content, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise ValueError("it is one array, as np.save writes it; name its arrays in np.savez")
            with file:
                yield file
    except (SyntaxError, TokenError, MemoryError, RuntimeError, zlib.error) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        fix = "an array has the dtype object, which is pickled; convert it, as in labels.astype(str)"
        raise ValueError(fix) from error
