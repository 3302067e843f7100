"""The content of an image store, read without importing torch, and digests of its images."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
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
    image_looks: tuple[str, ...]

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
        image_looks=tuple(index["image_looks"]),
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


CELLS = 8  # of a look, along each side
STEP = 8  # least difference of two neighbouring cells, in grey levels: flat areas stay flat when a pixel changes


def image_look(pixels: np.ndarray) -> str:
    """Return the digest of an image's look, which most images keep when a few pixels change.

    The image is reduced to 9 × 8 and to 8 × 9 grey cells; the look is which cells are brighter than their left and
    upper neighbours (a difference hash, 128 bits). Only equal looks are compared, so a digest of them suffices.
    """
    from PIL import Image  # not needed to read a store

    grey = Image.fromarray(pixels).convert("L")
    across, down = (
        np.asarray(grey.resize(size, Image.Resampling.BOX), dtype=np.int16)
        for size in ((CELLS + 1, CELLS), (CELLS, CELLS + 1))
    )
    brighter = (np.diff(across, axis=1) > STEP).tobytes() + (np.diff(down, axis=0) > STEP).tobytes()
    return hashlib.sha256(brighter).hexdigest()[:LENGTH]


PLANES = 128


def vector_look(vector: np.ndarray) -> str:
    """Return the digest of the sides of :data:`PLANES` fixed random planes on which a vector lies.

    Vectors that differ a little, as those of an image that was saved again, mostly lie on the same sides (Charikar
    2002: the share of planes between two vectors is their angle over π). The length of a vector does not matter.
    """
    return hashlib.sha256((_planes(len(vector)) @ vector > 0).tobytes()).hexdigest()[:LENGTH]


@lru_cache(maxsize=1)
def _planes(features: int) -> np.ndarray:
    return np.random.RandomState(0).standard_normal((PLANES, features))  # the same numbers in every version of NumPy


def digests_by_class(contents: StoreContents) -> dict[str, list[str]]:
    """Map class names to the sorted digests of their images; the digest of this JSON identifies all images."""
    found: dict[str, list[str]] = {name: [] for name in contents.class_names}
    for label, digest in zip(contents.labels_N, contents.image_digests, strict=True):
        found[contents.class_names[label]].append(digest)
    return {name: sorted(digests) for name, digests in found.items()}


FORMAT = 5
PIXELS, ARRAYS, INDEX = "pixels.bin", "arrays.npz", "index.json"
