"""Pictures composed of small images."""

import io
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from search.report.drawing import Photograph
from search.selection import SHORT_SIDE, in_digest_order
from trainables.data.dataset import Dataset
from trainables.data.images import Unreadable, cannot_be_read, unreadable
from trainables.errors import InvalidInput

if TYPE_CHECKING:
    from PIL import Image, ImageFont


GREY = "#7d8590"
"""Colour of text, legible on white and on black."""


class Mosaic:
    """A transparent canvas of ``width`` × ``height`` pixels for ``pictures``, encoded images by image number."""

    def __init__(self, width: int, height: int, pictures: Mapping[int, bytes]) -> None:
        from PIL import Image, ImageDraw

        self._pictures = pictures
        self._canvas = Image.new("RGBA", (width, height))
        self.draw = ImageDraw.Draw(self._canvas)

    def paste(self, image: int, corner: tuple[int, int], side: int, name: str = "") -> None:
        """Paste the central square of a picture at ``corner``, ``side`` pixels wide, or a frame with ``name``."""
        left, top = corner
        picture = self._pictures.get(image)
        if picture is None:
            self.draw.rectangle((left, top, left + side - 1, top + side - 1), outline=GREY)
            self.text((left + 4, top + side // 2 - 6), name, 9, room=side - 8)
            return
        self._canvas.paste(_square(picture, side), corner)

    def frame(self, corner: tuple[int, int], side: int, colour: str, width: int) -> None:
        """Draw a frame inside a square."""
        left, top = corner
        self.draw.rectangle((left, top, left + side - 1, top + side - 1), outline=colour, width=width)

    def text(self, corner: tuple[int, int], text: str, size: int, colour: str = GREY, room: int | None = None) -> None:
        """Draw a line of text, cut to ``room`` pixels."""
        font = _font(size)
        line = " ".join(text.split())
        if room is not None and font.getlength(line) > room:
            while line and font.getlength(line + "…") > room:
                line = line[:-1]
            line += "…"
        self.draw.text(corner, line, fill=colour, font=font)

    def mark(self, corner: tuple[int, int], colour: str, *, right: bool) -> None:
        """Draw a white check mark or cross on a coloured square of 14 pixels."""
        left, top = corner
        self.draw.rectangle((left, top, left + 13, top + 13), fill=colour)
        strokes = [[(3, 7), (6, 10), (11, 3)]] if right else [[(3, 3), (10, 10)], [(10, 3), (3, 10)]]
        for stroke in strokes:
            self.draw.line([(left + x, top + y) for x, y in stroke], fill="white", width=2)

    def photograph(self) -> Photograph:
        """Return the canvas as WebP."""
        content = io.BytesIO()
        self._canvas.save(content, "WEBP", quality=80)
        width, height = self._canvas.size
        return Photograph(content.getvalue(), "image/webp", width, height)


@lru_cache(maxsize=1024)
def _square(picture: bytes, side: int) -> "Image.Image":
    """Return the central square of a thumbnail; cached, since all maps show the same ones.

    Raises:
        ValueError: it is none. Of other formats, some would run programs (EPS).
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(picture), formats=("WEBP",)) as content:
            if min(content.size) > SHORT_SIDE:
                raise ValueError(f"a thumbnail has {content.width} × {content.height} pixels")
            return ImageOps.fit(content.convert("RGB"), (side, side), Image.Resampling.BICUBIC)
    except (OSError, Image.DecompressionBombError) as error:
        raise ValueError("a thumbnail is no WebP image") from error


@cache
def _font(size: int) -> "ImageFont.FreeTypeFont":
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


# A sample of the images of a data set.

COLUMNS, ROWS = 8, 5
SIDE, GAP = 128, 4
"""Size of a picture and of the gap between two, in pixels."""


def chosen(keys: Sequence[str]) -> list[str]:
    """Return the keys with the smallest SHA-256, the same sample on every machine."""
    return [keys[at] for at in in_digest_order(keys)[: COLUMNS * ROWS]]


def random_images(dataset: Dataset, keys: Sequence[str]) -> "Image.Image":
    """Compose the central squares of the images ``keys`` in rows of eight.

    Raises:
        InvalidInput: images cannot be read; the error names all of them.
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
        raise InvalidInput(cannot_be_read(wrong, len(keys)))
    return picture
