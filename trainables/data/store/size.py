"""How large an image store will be, from a sample of its images."""

import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.data.dataset import Dataset
from trainables.data.decode import resized_shape
from trainables.data.images import identified, open_file
from trainables.data.sets.rooted import RootedDataset

SAMPLE = 200
"""Of how many images the size is read, where they are files: their headers alone."""

DECODED = 20
"""Of how many, where they have to be decoded."""

OF_AN_IMAGE = 120
"""Bytes beside its pixels: its key and digest, its label and sides."""

ERRORS = 4.0
"""Standard errors of the sample's mean within which a store's size lies but for one case in ten thousand."""


@dataclass(frozen=True, kw_only=True)
class StoreSize:
    """Bytes that a store will have: ``expected``, and at ``least``."""

    expected: int
    least: int


def expected_size(dataset: Dataset, keys: Sequence[str], short_side: int) -> StoreSize:
    """The size of the store of the images ``keys``; some of them, evenly spread, are looked at."""
    most = SAMPLE if isinstance(dataset, RootedDataset) else DECODED
    sample = keys[:: max(1, -(-len(keys) // most))]
    return scaled_size([_bytes(size, short_side) for size in image_sizes(dataset, sample)], len(keys))


def scaled_size(sample: Sequence[int], count: int) -> StoreSize:
    """The size of ``count`` images of which some have these sizes; those that cannot be read have none."""
    if not sample:
        return StoreSize(expected=0, least=0)
    mean = statistics.fmean(sample)
    rest = max(0.0, 1 - len(sample) / count)  # of all images nothing is left to chance
    deviation = statistics.stdev(sample) if len(sample) > 1 else mean
    error = deviation * (rest / len(sample)) ** 0.5
    return StoreSize(expected=round(count * mean), least=max(0, round(count * (mean - ERRORS * error))))


def image_sizes(dataset: Dataset, keys: Sequence[str]) -> list[tuple[int, int]]:
    """Width and height of images, but for those that cannot be read, all of which decoding names."""
    return [size for key in keys if (size := _size(dataset, key))]


def _size(dataset: Dataset, key: str) -> tuple[int, int] | None:
    try:
        if not isinstance(dataset, RootedDataset):
            height, width = dataset.read(key).shape[:2]
            return width, height
        with warnings.catch_warnings(), open_file(Path(dataset.root or "", key)) as file:
            warnings.simplefilter("ignore")  # of images that are very large
            return identified(file).size
    except Exception:  # image decoders raise anything
        return None


def _bytes(size: tuple[int, int], short_side: int) -> int:
    width, height = size
    if min(size) > short_side:
        height, width = resized_shape(height, width, short_side)
    return 3 * width * height + OF_AN_IMAGE
