"""The images of a test set by their content, so that it is recognised whatever its names, order and file formats.

All images are kept, with 16 bytes each: the digest of the pixels and that of the look.

Shapes: N images, C classes.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainables.data.store.contents import read_contents

_STORED = np.dtype("<u8")


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """The images of some classes, class after class, without names; equal images give equal sets.

    Attributes:
        sizes_C: the number of images of each class.
        digests_N: the digests of the images' pixels, ascending within a class.
        looks_N: the digests of their looks, which survive small changes (:func:`image_look`).
    """

    sizes_C: NDArray[np.uint64]
    digests_N: NDArray[np.uint64]
    looks_N: NDArray[np.uint64]

    @classmethod
    def of(cls, images: Iterable[Iterable[tuple[str, str]]]) -> "ImageSet":
        """Return the set of the classes ``images``, whose images are hexadecimal digests of pixels and of the look."""
        classes = sorted(sorted((int(digest, 16), int(look, 16)) for digest, look in of_class) for of_class in images)
        flat = np.array([image for of_class in classes for image in of_class], dtype=_STORED).reshape(-1, 2)
        sizes_C = np.array([len(of_class) for of_class in classes], dtype=_STORED)
        return cls(sizes_C=sizes_C, digests_N=flat[:, 0].copy(), looks_N=flat[:, 1].copy())

    def __len__(self) -> int:
        return len(self.digests_N)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 (hex) of all images' pixels, grouped by class."""
        return hashlib.sha256(self.sizes_C.tobytes() + self.digests_N.tobytes()).hexdigest()

    @cached_property
    def copies(self) -> int:
        """The number of images whose pixels another image of the set has, too."""
        _, times = np.unique(self.digests_N, return_counts=True)
        return int(times[times > 1].sum())

    def known_images(self, other: "ImageSet") -> NDArray[np.bool_]:
        """Return for each image if ``other`` has it."""
        return np.isin(self.digests_N, other.digests_N)

    def similar_images(self, other: "ImageSet") -> NDArray[np.bool_]:
        """Return for each image if it looks like one of ``other``."""
        return np.isin(self.looks_N, other.looks_N)

    def count_classes(self, known_N: NDArray[np.bool_]) -> int:
        """Count the classes of the images ``known_N``."""
        classes_N = np.repeat(np.arange(len(self.sizes_C)), self.sizes_C.astype(np.int64))
        return len(np.unique(classes_N[known_N]))

    def to_bytes(self) -> bytes:
        """Return the content of its file: the number of classes, then the three arrays, as little-endian integers."""
        arrays = (np.array([len(self.sizes_C)]), self.sizes_C, self.digests_N, self.looks_N)
        return b"".join(array.astype(_STORED).tobytes() for array in arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> "ImageSet":
        """Return the set that :meth:`to_bytes` wrote.

        Raises:
            ValueError: the content is of another length.
        """
        numbers = np.frombuffer(content, dtype=_STORED)
        classes = int(numbers[0]) if len(numbers) else 0
        sizes_C, images = numbers[1 : 1 + classes], numbers[1 + classes :]
        if len(images) != 2 * int(sizes_C.sum()):
            raise ValueError(f"{len(images)} numbers for {int(sizes_C.sum())} images")
        digests_N, looks_N = images.reshape(2, -1)
        return cls(sizes_C=sizes_C, digests_N=digests_N, looks_N=looks_N)


def images_in(store: Path) -> ImageSet:
    """Return the images of the store at ``store``.

    Raises:
        InvalidInput: the store is damaged.
    """
    contents = read_contents(store)
    classes: list[list[tuple[str, str]]] = [[] for _ in contents.class_names]
    for label, *image in zip(contents.labels_N.tolist(), contents.image_digests, contents.image_looks, strict=True):
        classes[label].append((image[0], image[1]))
    return ImageSet.of(classes)
