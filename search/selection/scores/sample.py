"""Which test images stand for all: chosen by the SHA-256 of their names, so that every model has the same ones.

Shapes: N test images, S sampled images.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CLASSES = 20
"""So many classes are on a map: more cannot be told apart by their colours."""

IMAGES = 25
"""So many images of a class are on a map."""


def in_digest_order(names: Sequence[str]) -> list[int]:
    """The positions of ``names`` in the order of the names' SHA-256."""
    digests = [hashlib.sha256(name.encode()).digest() for name in names]
    return sorted(range(len(names)), key=digests.__getitem__)


def sampled_queries(keys: Sequence[str], most: int) -> NDArray[np.int32]:
    """The first ``most`` images in the order of their keys' digests, or all; their numbers, ascending."""
    chosen = range(len(keys)) if len(keys) <= most else sorted(in_digest_order(keys)[:most])
    return np.fromiter(chosen, dtype=np.int32)


def map_images(keys: Sequence[str], labels_N: NDArray[np.int64], class_names: Sequence[str]) -> NDArray[np.int32]:
    """The images of a map, ascending: of the first :data:`CLASSES` classes the first :data:`IMAGES` each, by digests.

    ``labels_N`` are positions in ``class_names``.
    """
    order_N = np.asarray(in_digest_order(keys), dtype=np.int64)
    of_class = [order_N[labels_N[order_N] == label][:IMAGES] for label in in_digest_order(class_names)[:CLASSES]]
    return np.sort(np.concatenate(of_class)).astype(np.int32)
