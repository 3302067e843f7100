"""Embeddings and the paths of their images in one file, which needs no pickle.

Shapes: N images, D dimensions.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from trainables.files.whole import given_path, write_whole
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def refuse_file(address: str) -> None:
    """What can be known before anything is embedded.

    Raises:
        Mistakes: the file's suffix says no format, or it cannot be written.
    """
    path = given_path(address)
    if path.suffix not in _WRITERS:
        raise Mistakes(
            f"--to {address}: the file's suffix says its format and must be one of {', '.join(_WRITERS)}; it is "
            f"{path.suffix!r}."
        )
    if path.is_dir():
        raise Mistakes(f"--to {address}: it is a folder; name a file.")
    refuse_unwritable(address)


def refuse_unwritable(address: str) -> None:
    """The folder in which something is to be made, or the nearest that there is above it, can be written.

    Raises:
        Mistakes: it cannot.
    """
    path = given_path(address)
    if not isinstance(path, Path):
        return  # a store says so when it is written
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise Mistakes(f"--to {address}: nothing can be written into {above}; name another place.")


def write_embeddings(address: str, embeddings_ND: "NDArray[np.float32]", paths: Sequence[str]) -> None:
    """Write embeddings and their images' paths, in the format of the file's suffix.

    ``.npz`` holds the arrays ``embeddings`` (float32 [N, D]) and ``paths``; ``.parquet`` the columns ``path`` and
    ``embedding`` (a list of D float32).

    Raises:
        Mistakes: the file cannot be written, or a path cannot be written in its format.
    """
    path = given_path(address)
    try:
        write_whole(path, _WRITERS[path.suffix](embeddings_ND, paths))
    except UnicodeEncodeError as error:
        raise Mistakes(
            f"--to {address}: the path {error.object!a} is no UTF-8, which Parquet asks for; write a .npz file."
        ) from error
    except OSError as error:
        raise Mistakes(
            f"--to {address}: it cannot be written ({error.strerror or error}); name another file."
        ) from error


def _as_npz(embeddings_ND: "NDArray[np.float32]", paths: Sequence[str]) -> Callable[[IO[bytes]], object]:
    import numpy as np

    return lambda file: np.savez(file, embeddings=embeddings_ND, paths=np.array(paths, dtype=np.str_))


def _as_parquet(embeddings_ND: "NDArray[np.float32]", paths: Sequence[str]) -> Callable[[IO[bytes]], object]:
    import pyarrow
    from pyarrow.parquet import write_table

    flat = pyarrow.array(embeddings_ND.reshape(-1))
    embeddings = pyarrow.FixedSizeListArray.from_arrays(flat, embeddings_ND.shape[1])
    table = pyarrow.table({"path": pyarrow.array(paths, pyarrow.string()), "embedding": embeddings})
    return lambda file: write_table(table, file)


_WRITERS = {".npz": _as_npz, ".parquet": _as_parquet}
