"""What the files of an image store hold, read without torch, which who only makes sure of a store need not wait for."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from trainables.data.store.files import ARRAYS, FORMAT, INDEX, PIXELS
from trainables.mistakes import Mistakes


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreContents:
    """The labels, sizes and names of N images, and their pixels, which are read from disk when they are asked for."""

    labels_N: np.ndarray
    sizes_N2: np.ndarray
    pixels: np.ndarray
    class_names: tuple[str, ...]
    image_keys: tuple[str, ...]
    image_digests: tuple[str, ...]

    @cached_property
    def lengths_N(self) -> np.ndarray:
        """How many bytes of ``pixels`` each image has."""
        lengths_N: np.ndarray = 3 * self.sizes_N2.prod(axis=1)
        return lengths_N


def read_contents(path: Path) -> StoreContents:
    """The store at ``path``.

    Raises:
        Mistakes: there is no store, or it is damaged.
    """
    try:
        index = json.loads((path / INDEX).read_text())
        with np.load(path / ARRAYS) as arrays:
            labels_N, sizes_N2 = arrays["labels_N"], arrays["sizes_N2"]
        pixels = np.memmap(path / PIXELS, dtype=np.uint8, mode="r")
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise Mistakes(f"There is no readable image store at {str(path)!r} ({error}).") from error
    if index["format"] != FORMAT:
        raise Mistakes(f"The image store {str(path)!r} is of another version. Remove it to build it again.")
    contents = StoreContents(
        labels_N=labels_N,
        sizes_N2=sizes_N2,
        pixels=pixels,
        class_names=tuple(index["class_names"]),
        image_keys=tuple(index["image_keys"]),
        image_digests=tuple(index["image_digests"]),
    )
    if len(pixels) != contents.lengths_N.sum():
        raise Mistakes(f"The image store {str(path)!r} is damaged. Remove it to build it again.")
    return contents
