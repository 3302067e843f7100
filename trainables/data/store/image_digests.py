"""Classes by the content of their images: names, order, file formats and folders play no part.

An image's digest is that of its decoded pixels before they are scaled, so that stores of every size agree.
"""

import hashlib
import json
from collections.abc import Mapping

import numpy as np

from trainables.data.store.contents import StoreContents

LENGTH = 16  # of an image's digest, in hexadecimal digits: a million images have no two alike by accident
KEPT = 4  # of a class: some of them remain where images are added to it or taken away


def image_digest(pixels: np.ndarray) -> str:
    """The digest of one image (uint8, height × width × 3)."""
    shape = "×".join(map(str, pixels.shape)).encode()
    return hashlib.sha256(shape + np.ascontiguousarray(pixels).data).hexdigest()[:LENGTH]


def digests_by_class(contents: StoreContents) -> dict[str, list[str]]:
    """The sorted digests of each class's images, by the class's name."""
    found: dict[str, list[str]] = {name: [] for name in contents.class_names}
    for label, digest in zip(contents.labels_N, contents.image_digests, strict=True):
        found[contents.class_names[label]].append(digest)
    return {name: sorted(digests) for name, digests in found.items()}


def fingerprints(by_class: Mapping[str, list[str]]) -> list[tuple[str, ...]]:
    """A few images of each class, enough to know it again: its lowest digests.

    >>> fingerprints({"heron": ["1a", "2b", "3c", "4d", "5e"], "kestrel": ["6f"]})
    [('1a', '2b', '3c', '4d'), ('6f',)]
    """
    return sorted(tuple(digests[:KEPT]) for digests in by_class.values())


def content_digest(by_class: Mapping[str, list[str]]) -> str:
    """SHA-256 (hex) of all images and how they are put into classes, whatever these are called."""
    return hashlib.sha256(json.dumps(sorted(by_class.values())).encode()).hexdigest()


def named_digest(by_class: Mapping[str, list[str]]) -> str:
    """SHA-256 (hex) of all images and the names of their classes."""
    return hashlib.sha256(json.dumps(by_class, sort_keys=True).encode()).hexdigest()
