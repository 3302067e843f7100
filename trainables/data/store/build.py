"""Building an image store: each image is decoded once per node, and a store exists completely or not at all."""

import math
import os
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainables.common.errors import InvalidInput, shaped
from trainables.common.files import write_json, write_whole
from trainables.common.process import allotted_cpus
from trainables.common.storage import OUTAGES
from trainables.data.dataset import Dataset, ItemDataset
from trainables.data.images import Unreadable, cannot_be_read, fitted, fitted_shape, identified, open_file, unreadable
from trainables.data.sets.folders import RootedDataset
from trainables.data.store.contents import (
    ARRAYS,
    FORMAT,
    INDEX,
    LENGTH,
    PIXELS,
    image_digest,
    item_bytes,
    item_digest,
)

if TYPE_CHECKING:
    from trainables.data.store.store_spec import StoreSpec

AHEAD = 32  # images per worker that may be decoded before they are written; bounds the memory

Decoded = tuple[bytes, tuple[int, int] | None, str]
"""The bytes of an image that fits the store, its height and width, and its digest; vectors have no sides."""


def write_store(
    folder: Path,
    spec: "StoreSpec",
    classes: Mapping[str, Sequence[str]],
    on_progress: Callable[[int, int], None] | None,
) -> None:
    """Write the store of ``spec`` into ``folder``; see :meth:`StoreSpec.held` for the errors."""
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
    """Return the item ``key`` of a data set; raise :class:`WrongItem`, or any error of its ``read``."""
    item = dataset.read(key)
    if isinstance(dataset, ItemDataset):
        return item
    form: tuple[type[np.generic], int, tuple[int]] = np.uint8, 3, (3,)
    due = "uint8, height × width × 3 (RGB), as of np.asarray(image.convert('RGB'))"
    if (features := dataset.features()) is not None:
        due, form = f"float32 of {features} numbers, as features() says", (np.float32, 1, (features,))
    if isinstance(item, np.ndarray) and item.size and (item.dtype, item.ndim, item.shape[-1:]) == form:
        return item
    what = type(item).__name__
    if isinstance(shape := getattr(item, "shape", None), tuple):
        what += f" of {getattr(item, 'dtype', '?')}, {shaped(shape)}"
    raise WrongItem(f"{type(dataset).__name__}.read must return {due}; it returned {what}.")


OF_AN_IMAGE = 120  # bytes in addition to its pixels: key, digest, label and size


def expected_size(dataset: Dataset, keys: Sequence[str], short_side: int) -> int:
    """Estimate the bytes of the store of the images ``keys`` from an evenly spaced sample."""
    if (features := dataset.features()) is not None:
        return len(keys) * (4 * features + OF_AN_IMAGE)
    most = 200 if isinstance(dataset, RootedDataset) else 20  # headers of files are read, others are decoded
    sample = keys[:: max(1, -(-len(keys) // most))]
    if isinstance(dataset, ItemDataset):
        sizes = [len(item_bytes(dataset.read(key))) for key in sample]
    else:
        shapes = (fitted_shape(height, width, short_side) for width, height in image_sizes(dataset, sample))
        sizes = [3 * math.prod(shape) for shape in shapes]
    return round(len(keys) * (statistics.fmean(sizes) + OF_AN_IMAGE)) if sizes else 0


def image_sizes(dataset: Dataset, keys: Sequence[str]) -> list[tuple[int, int]]:
    """Return width and height of the readable images; unreadable ones are reported when they are decoded."""
    sizes = []
    for key in keys:
        with suppress(Exception), warnings.catch_warnings():  # image decoders raise anything
            warnings.simplefilter("ignore")  # about very large images
            if isinstance(dataset, RootedDataset):
                with open_file(dataset.path(key)) as file:
                    sizes.append(identified(file).size)
            else:
                height, width = dataset.read(key).shape[:2]
                sizes.append((width, height))
    return sizes
