"""Pictures put together from small images."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from search.report.drawing import Photograph
from trainables.data.dataset import Dataset
from trainables.data.images import Unreadable, cannot_be_read, unreadable
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from PIL import Image, ImageFont


# Pictures put together from small ones, on a ground that shows the page, so that it is read in light and dark.

GREY = "#7d8590"
"""Text that is read on white and on black."""


class Mosaic:
    """A canvas of ``width`` by ``height`` pixels for small pictures, which are known by their images' numbers."""

    def __init__(self, width: int, height: int, pictures: Mapping[int, bytes]) -> None:
        from PIL import Image, ImageDraw

        self._pictures = pictures
        self._canvas = Image.new("RGBA", (width, height))
        self.draw = ImageDraw.Draw(self._canvas)

    def paste(self, image: int, corner: tuple[int, int], side: int) -> None:
        """Put the middle square of an image's picture at ``corner``, ``side`` pixels wide; a grey one without it."""
        left, top = corner
        picture = self._pictures.get(image)
        if picture is None:
            self.draw.rectangle((left, top, left + side - 1, top + side - 1), outline=GREY)
            return
        self._canvas.paste(_square(picture, side), corner)

    def frame(self, corner: tuple[int, int], side: int, colour: str, width: int) -> None:
        """A frame inside a square."""
        left, top = corner
        self.draw.rectangle((left, top, left + side - 1, top + side - 1), outline=colour, width=width)

    def text(self, corner: tuple[int, int], text: str, size: int, colour: str = GREY, room: int | None = None) -> None:
        """A line of text, cut where it has no more ``room`` in pixels."""
        font = _font(size)
        line = " ".join(text.split())
        if room is not None and font.getlength(line) > room:
            while line and font.getlength(line + "…") > room:
                line = line[:-1]
            line += "…"
        self.draw.text(corner, line, fill=colour, font=font)

    def mark(self, corner: tuple[int, int], colour: str, *, right: bool) -> None:
        """A check mark or a cross, white on a coloured square of 14 pixels."""
        left, top = corner
        self.draw.rectangle((left, top, left + 13, top + 13), fill=colour)
        strokes = [[(3, 7), (6, 10), (11, 3)]] if right else [[(3, 3), (10, 10)], [(10, 3), (3, 10)]]
        for stroke in strokes:
            self.draw.line([(left + x, top + y) for x, y in stroke], fill="white", width=2)

    def photograph(self) -> Photograph:
        """What is on the canvas, as WebP."""
        content = io.BytesIO()
        self._canvas.save(content, "WEBP", quality=80)
        width, height = self._canvas.size
        return Photograph(content.getvalue(), "image/webp", width, height)


@lru_cache(maxsize=1024)
def _square(picture: bytes, side: int) -> "Image.Image":
    """The middle of a picture; all maps show the same ones."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(picture)) as content:
        return ImageOps.fit(content.convert("RGB"), (side, side), Image.Resampling.BICUBIC)


@cache
def _font(size: int) -> "ImageFont.FreeTypeFont":
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


# Images of a data set at random, beside each other, as papers introduce one.

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
