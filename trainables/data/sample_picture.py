"""A picture of a sample of a data set's images."""

from collections.abc import Sequence

from PIL import Image, ImageOps

from trainables.data.dataset import Dataset
from trainables.data.images import Unreadable, cannot_be_read, unreadable
from trainables.errors import InvalidInput
from trainables.files import in_digest_order

COLUMNS, ROWS = 8, 5
SIDE, GAP = 128, 4
"""Size of a picture and of the gap between two, in pixels."""


def sample(keys: Sequence[str]) -> list[str]:
    """Return the keys with the smallest SHA-256, the same sample on every machine."""
    return [keys[at] for at in in_digest_order(keys)[: COLUMNS * ROWS]]


def random_images(dataset: Dataset, keys: Sequence[str]) -> Image.Image:
    """Compose the central squares of the images ``keys`` in rows of eight.

    Raises:
        InvalidInput: images cannot be read; the error names all of them.
    """
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
        raise InvalidInput(cannot_be_read(wrong, len(keys)))
    return picture
