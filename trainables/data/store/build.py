"""Building an image store: each image is decoded once per node, and a store exists completely or not at all."""

import json
import logging
import os
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainables.common.errors import InvalidInput, shaped
from trainables.common.files import digest_of, write_json, write_whole
from trainables.common.process import allotted_cpus
from trainables.common.storage import OUTAGES, DiskFull, is_full
from trainables.data.dataset import Dataset, ItemDataset
from trainables.data.images import Unreadable, cannot_be_read, fitted, identified, open_file, resized_shape, unreadable
from trainables.data.sets.folders import RootedDataset
from trainables.data.store.cache import found_or_built
from trainables.data.store.contents import (
    ARRAYS,
    FORMAT,
    INDEX,
    LENGTH,
    PIXELS,
    image_digest,
    item_bytes,
    item_digest,
    read_contents,
)

if TYPE_CHECKING:
    from trainables.data.store.store_spec import StoreSpec

logger = logging.getLogger(__name__)

AHEAD = 32  # images per worker that may be decoded before they are written; bounds the memory

Progress = Callable[[int, int], None]


Decoded = tuple[bytes, tuple[int, int] | None, str]
"""The bytes of an image that fits the store, its height and width, and its digest; vectors have no sides."""


@contextmanager
def held_store(spec: "StoreSpec", on_progress: Progress | None = None) -> Iterator[Path]:
    """Find or build the store of ``spec`` and yield its path; it is locked within the context.

    Images keep their aspect ratio and are never enlarged. Only images of the classes of ``spec`` are opened. If several
    processes need a store, one builds it and the others wait; the remains of a killed process are removed by the next.
    Unused stores are evicted to make room.

    Raises:
        InvalidInput: images cannot be read (all are listed), or the store is damaged; or, caused by an ``OSError``, the
            cache cannot be written or the storage of the images cannot be reached.
        DiskFull: there is no space left for the store; the partial store is removed.
    """
    classes = _classes(spec)
    keys = [key for keys in classes.values() for key in keys]
    store = _path(spec, classes)

    def build(draft: Path) -> None:
        logger.info("Building the image store %s.", store)
        _write(draft, spec, classes, on_progress)

    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        in_use = found_or_built(store, lambda: expected_size(spec.dataset, keys, spec.short_side), build)
    except OSError as error:
        if is_full(error):
            raise DiskFull.at(store, "set dataset.cache to another folder") from error
        raise InvalidInput(
            f"The cache cannot be written below {str(store.parent)!r}: {error.strerror or error}. "
            "Allow writing there, or set dataset.cache to another folder."
        ) from error
    try:
        read_contents(store)
        yield store
    finally:
        in_use.close()


def find_store(spec: "StoreSpec") -> Path | None:
    """Return the path of the store of ``spec`` if it exists; no image is opened."""
    store = _path(spec, _classes(spec))
    return store if store.is_dir() else None


def _classes(spec: "StoreSpec") -> dict[str, tuple[str, ...]]:
    wanted = set(spec.class_names)
    # In the data set's order, so that all splits of one training half share a store.
    classes = {name: tuple(keys) for name, keys in spec.dataset.classes().items() if name in wanted}
    assert len(classes) == len(wanted), f"classes that the data set does not have: {wanted - set(classes)}"
    return classes


def _path(spec: "StoreSpec", classes: Mapping[str, Sequence[str]]) -> Path:
    """Return the path of the store: its name is the SHA-256 of everything that determines its content."""
    stamps = [[name, [[key, _stamp(spec.dataset, key)] for key in keys]] for name, keys in classes.items()]
    content = [FORMAT, spec.dataset.identity(), spec.short_side, stamps]
    return Path(spec.cache, digest_of(json.dumps(content).encode()))


def _stamp(dataset: Dataset, key: str) -> str:
    try:
        return dataset.stamp(key)
    except OSError as error:
        return f"unreadable: {error}"  # reading it will fail too and be reported with the others


def _write(folder: Path, spec: "StoreSpec", classes: Mapping[str, Sequence[str]], on_progress: Progress | None) -> None:
    dataset, keys = spec.dataset, [key for keys in classes.values() for key in keys]
    sizes: list[tuple[int, int]] = []
    digests: list[str] = []
    bad: list[Unreadable] = []
    with (folder / PIXELS).open("wb") as file:
        for done, image in enumerate(_decoded(dataset, keys, spec.short_side), start=1):
            if isinstance(image, Unreadable):
                bad.append(image)
            elif not bad:
                content, size, digest = image
                file.write(content)
                sizes += [] if size is None else [size]
                digests.append(digest)
            if on_progress is not None:
                on_progress(done, len(keys))
        if bad:
            raise InvalidInput(f"{cannot_be_read(bad, len(keys), dataset.noun)} Replace or remove them.")
        file.flush()
        os.fsync(file.fileno())
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(keys) for keys in classes.values()])
    sizes_N2 = np.array(sizes, dtype=np.int64).reshape(-1, 2)
    write_whole(folder / ARRAYS, lambda file: np.savez(file, labels_N=labels, sizes_N2=sizes_N2))
    features = dataset.features()  # of a user-defined data set maybe one of NumPy's numbers
    index = {
        "format": FORMAT,
        "dataset": dataset.identity(),  # like the short side to describe the cache's content
        "short_side": spec.short_side,
        "features": features and int(features),
        "of_items": isinstance(dataset, ItemDataset),
        "class_names": list(classes),
        "image_keys": keys,
        "image_digests": digests,
    }
    write_json(folder / INDEX, index)


def _decoded(dataset: Dataset, keys: Sequence[str], short_side: int) -> Iterator[Decoded | Unreadable]:
    workers = allotted_cpus()
    with ThreadPoolExecutor(workers) as pool:  # Pillow releases the interpreter lock
        for start in range(0, len(keys), AHEAD * workers):
            chunk = keys[start : start + AHEAD * workers]
            yield from pool.map(lambda key: _read(dataset, key, short_side), chunk)


def _read(dataset: Dataset, key: str, short_side: int) -> Decoded | Unreadable:
    try:
        item = read_item(dataset, key)
        if isinstance(dataset, ItemDataset):
            content = item_bytes(item)
            return content, (1, len(content)), item_digest(item)[:LENGTH]
        if dataset.features() is not None:
            if not (np.isfinite(item).all() and item.any()):
                raise ValueError("its numbers are not finite, or all zero")
            return item.tobytes(), None, image_digest(item)
        fitting = fitted(item, short_side)
        return fitting.transpose(1, 0, 2).tobytes(), fitting.shape[:2], image_digest(item)
    except OSError as error:
        if error.errno in OUTAGES:  # others would fail too
            raise InvalidInput(
                f"The data cannot be read now: {key} failed ({type(error).__name__}: {error}). Check their disk or "
                "network, then try again."
            ) from error
        return unreadable(key, error)
    except WrongItem:
        raise
    except Exception as error:  # decoders raise anything; all bad files are reported together
        return unreadable(key, error)


class WrongItem(InvalidInput):
    """What the ``read`` of a user's data set returns is of another kind than a data set's items are."""


def read_item(dataset: Dataset, key: str) -> Any:
    """Return the item ``key`` of a data set, of the kind that its ``read`` must return.

    Raises:
        WrongItem: it is of another kind.
        Exception: any error of ``read``.
    """
    item = dataset.read(key)
    if isinstance(dataset, ItemDataset):
        return item
    if (features := dataset.features()) is not None:
        due, fits = f"float32 of {features} numbers, as features() says", _is(item, np.float32, 1, features)
    else:
        due, fits = "uint8, height × width × 3 (RGB), as of np.asarray(image.convert('RGB'))", _is(item, np.uint8, 3, 3)
    if fits:
        return item
    what = type(item).__name__
    if isinstance(shape := getattr(item, "shape", None), tuple):
        what += f" of {getattr(item, 'dtype', '?')}, {shaped(shape)}"
    raise WrongItem(f"{type(dataset).__name__}.read must return {due}; it returned {what}.")


def _is(item: Any, dtype: type, dimensions: int, last: int) -> bool:
    right = isinstance(item, np.ndarray) and item.dtype == dtype and item.ndim == dimensions and item.size > 0
    return bool(right and item.shape[-1] == last)


# Size estimate

SAMPLED_FILES = 200
"""Sample size if images are files, of which only the headers are read."""

SAMPLED_READS = 20
"""Sample size if images have to be decoded."""

OF_AN_IMAGE = 120
"""Bytes per image in addition to its pixels: key, digest, label and size."""


def expected_size(dataset: Dataset, keys: Sequence[str], short_side: int) -> int:
    """Estimate the bytes of the store of the images ``keys`` from an evenly spaced sample."""
    if (features := dataset.features()) is not None:
        return len(keys) * (4 * features + OF_AN_IMAGE)
    most = SAMPLED_FILES if isinstance(dataset, RootedDataset) else SAMPLED_READS
    sample = keys[:: max(1, -(-len(keys) // most))]
    if isinstance(dataset, ItemDataset):
        sizes = [len(item_bytes(dataset.read(key))) + OF_AN_IMAGE for key in sample]
    else:
        sizes = [_bytes(size, short_side) for size in image_sizes(dataset, sample)]
    return round(len(keys) * statistics.fmean(sizes)) if sizes else 0


def image_sizes(dataset: Dataset, keys: Sequence[str]) -> list[tuple[int, int]]:
    """Return width and height of the readable images; unreadable ones are reported when they are decoded."""
    return [size for key in keys if (size := _size(dataset, key))]


def _size(dataset: Dataset, key: str) -> tuple[int, int] | None:
    try:
        if not isinstance(dataset, RootedDataset):
            height, width = dataset.read(key).shape[:2]
            return width, height
        with warnings.catch_warnings(), open_file(dataset.path(key)) as file:
            warnings.simplefilter("ignore")  # about very large images
            return identified(file).size
    except Exception:  # image decoders raise anything
        return None


def _bytes(size: tuple[int, int], short_side: int) -> int:
    width, height = size
    if min(size) > short_side:
        height, width = resized_shape(height, width, short_side)
    return 3 * width * height + OF_AN_IMAGE
