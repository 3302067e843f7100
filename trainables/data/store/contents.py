"""The content of an image store, read without importing torch, and digests of its images.

Items that are neither images nor vectors are stored as bytes.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from trainables.common.errors import InvalidInput
from trainables.common.files import DAMAGED, digest_of, read_arrays


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreContents:
    """Labels, sizes and names of N images, and their memory-mapped pixels.

    Of vectors ``pixels`` are the numbers, ``features`` of each, and there are no sizes. ``of_items`` of another kind
    ``pixels`` are their bytes, and ``sizes_N2`` are 1 and their lengths.
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


# Items as bytes, and their digests.

KINDS = "a text, bytes, a number, a path, a NumPy array of numbers, or a list or mapping of these"
LENGTH_BYTES = 8  # of the length of the JSON at the beginning


def item_bytes(item: object) -> bytes:
    """Return ``item`` as bytes: a JSON that describes it, and the content of its arrays and bytes."""
    blocks: list[bytes] = []

    def kept(content: bytes, **entry: Any) -> dict[str, Any]:
        blocks.append(content)
        return {**entry, "length": len(content)}

    text = json.dumps(_described(item, kept)).encode()
    return b"".join((len(text).to_bytes(LENGTH_BYTES, "little"), text, *blocks))


def item_of(content: bytes) -> Any:
    """Return the item whose bytes :func:`item_bytes` returned."""
    end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")

    def built(entry: Any) -> Any:
        nonlocal end
        if not isinstance(entry, dict):
            return entry
        kind, value = entry["kind"], entry.get("value", ())
        if kind in ("list", "tuple"):
            return {"list": list, "tuple": tuple}[kind](built(part) for part in value)
        if kind == "mapping":
            return {key: built(part) for key, part in value}
        if kind == "path":
            return Path(value)
        block = content[end : end + entry["length"]]
        end += entry["length"]
        if kind == "bytes":
            return block
        return np.frombuffer(block, dtype=entry["dtype"]).reshape(entry["shape"]).copy()

    return built(json.loads(content[LENGTH_BYTES:end]))


def item_digest(item: object) -> str:
    """Return the SHA-256 (hex) of an item; a path of a file counts by the file's content, wherever it is."""

    def kept(content: bytes, **entry: Any) -> dict[str, Any]:
        return {**entry, "sha256": digest_of(content)}

    def digest(path: PurePath) -> str:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return digest_of(json.dumps(_described(item, kept, file=digest)).encode())


def _described(item: object, kept: Callable[..., dict[str, Any]], file: Callable[[PurePath], str] = str) -> Any:
    """Return ``item`` as JSON types, whose arrays and bytes ``kept`` receives in their order."""
    if item is None or isinstance(item, bool | int | float | str):
        return item
    if isinstance(item, np.generic):
        return item.item()
    if isinstance(item, bytes):
        return kept(item, kind="bytes")
    if isinstance(item, PurePath):
        return {"kind": "path", "value": file(item)}
    if isinstance(item, np.ndarray) and item.dtype.kind in "biufc":
        content = np.ascontiguousarray(item).tobytes()
        return kept(content, kind="array", dtype=item.dtype.str, shape=list(item.shape))
    if isinstance(item, list | tuple):
        kind = "list" if isinstance(item, list) else "tuple"
        return {"kind": kind, "value": [_described(part, kept, file) for part in item]}
    if isinstance(item, Mapping) and all(isinstance(key, str) for key in item):
        return {"kind": "mapping", "value": [[key, _described(part, kept, file)] for key, part in item.items()]}
    raise ValueError(f"it is of {type(item).__name__}; an item is {KINDS}")
