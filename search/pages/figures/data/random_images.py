"""Images of a data set at random, beside each other, as papers introduce one."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainables.data.dataset import Dataset
from trainables.data.decode import Unreadable, cannot_be_read, unreadable
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from PIL import Image

COLUMNS, ROWS = 8, 5
SIDE, GAP = 128, 4
"""Pixels of a picture and between two."""


def chosen(keys: Sequence[str]) -> list[str]:
    """The images with the smallest SHA-256 of their keys, so that the same ones are shown wherever the data lie."""
    return sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())[: COLUMNS * ROWS]


def random_images(dataset: Dataset, keys: Sequence[str]) -> "Image.Image":
    """The middle squares of the images ``keys``, in rows of eight.

    Raises:
        Mistakes: images that cannot be read, all of them named.
    """
    from PIL import Image, ImageOps

    rows = -(-len(keys) // COLUMNS)
    step = SIDE + GAP
    picture = Image.new("RGB", (min(len(keys), COLUMNS) * step - GAP, rows * step - GAP), "white")
    wrong: list[Unreadable] = []
    for place, key in enumerate(keys):
        try:
            pixels = dataset.read(key)
        except Exception as error:  # decoders raise anything
            wrong.append(unreadable(key, error))
            continue
        square = ImageOps.fit(Image.fromarray(pixels), (SIDE, SIDE), Image.Resampling.BICUBIC)
        picture.paste(square, (place % COLUMNS * step, place // COLUMNS * step))
    if wrong:
        raise Mistakes(cannot_be_read(wrong, len(keys)))
    return picture
