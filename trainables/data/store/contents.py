"""The content of an image store, read without importing torch, and digests of its images."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from trainables.arrays import read_arrays
from trainables.errors import InvalidInput
from trainables.files import DAMAGED


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreContents:
    """Labels, sizes and names of N images, and their memory-mapped pixels.

    If items are vectors, ``features`` is their size, their float32 numbers are in ``pixels``, and there are no sizes.
    If they are ``of_items`` of another kind, ``pixels`` are their bytes, and ``sizes_N2`` are 1 and their lengths.
    """

    features: int | None
    of_items: bool
    labels_N: np.ndarray
    sizes_N2: np.ndarray
    pixels: np.ndarray
    class_names: tuple[str, ...]
    image_keys: tuple[str, ...]
    image_digests: tuple[str, ...]

    @cached_property
    def lengths_N(self) -> np.ndarray:
        """Number of bytes of each image in ``pixels``."""
        if self.features is not None:
            return np.full(len(self.labels_N), 4 * self.features)
        return (1 if self.of_items else 3) * self.sizes_N2.prod(axis=1)


def read_contents(path: Path) -> StoreContents:
    """Read the store at ``path``; raise :class:`InvalidInput` if there is none, or it is damaged."""
    try:
        index = json.loads((path / INDEX).read_bytes())
        labels_N, sizes_N2 = read_arrays(path / ARRAYS, "labels_N", "sizes_N2").values()
        pixels = np.memmap(path / PIXELS, dtype=np.uint8, mode="r")
    except (OSError, *DAMAGED) as error:
        raise InvalidInput(f"There is no readable image store at {str(path)!r} ({error}).") from error
    if index["format"] != FORMAT:
        raise InvalidInput(f"The image store {str(path)!r} is of another version. Remove it to build it again.")
    contents = StoreContents(
        features=index["features"],
        of_items=index.get("of_items", False),
        labels_N=labels_N,
        sizes_N2=sizes_N2,
        pixels=pixels,
        class_names=tuple(index["class_names"]),
        image_keys=tuple(index["image_keys"]),
        image_digests=tuple(index["image_digests"]),
    )
    if len(pixels) != contents.lengths_N.sum():
        raise InvalidInput(f"The image store {str(path)!r} is damaged. Remove it to build it again.")
    return contents


# Digests identify classes by the content of their images, independent of names, order, file formats and folders. They
# are computed from decoded pixels before scaling, so that stores of every size agree.

LENGTH = 16  # hexadecimal digits of an image's digest: no accidental collision among a million images


def image_digest(pixels: np.ndarray) -> str:
    """Return the digest of one image (uint8, height × width × 3), or of one vector (float32)."""
    shape = "×".join(map(str, pixels.shape)).encode()
    equal = pixels + pixels.dtype.type(0)  # -0.0 becomes 0.0
    return hashlib.sha256(shape + np.ascontiguousarray(equal).data).hexdigest()[:LENGTH]


def digests_by_class(contents: StoreContents) -> dict[str, list[str]]:
    """Map class names to the sorted digests of their images; the digest of this JSON identifies all images."""
    found: dict[str, list[str]] = {name: [] for name in contents.class_names}
    for label, digest in zip(contents.labels_N, contents.image_digests, strict=True):
        found[contents.class_names[label]].append(digest)
    return {name: sorted(digests) for name, digests in found.items()}


FORMAT = 6
PIXELS, ARRAYS, INDEX = "pixels.bin", "arrays.npz", "index.json"
