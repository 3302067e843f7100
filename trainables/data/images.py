"""Image files: decoded as displayed (upright, 8 bits a channel, RGB on white), or checked without decoding."""

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from trainables.common.errors import InvalidInput, listed

IMAGE_SUFFIXES = frozenset(
    {
        ".apng", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif",
        ".tiff", ".webp",
    }
)  # fmt: skip
"""Suffixes, in any case, of the files in a folder that are images: those of Pillow for :data:`FORMATS`."""

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""Pillow's formats that are read, whatever a file is called. Others run programs (EPS) or are seldom tried."""

TIFF_BITS_PER_SAMPLE, TIFF_PHOTOMETRIC, TIFF_WHITE_IS_ZERO = 258, 262, 0


def read_image(path: Path) -> np.ndarray:
    """Read an image file as displayed: uint8, height × width × 3. May raise any error of Pillow."""
    with open_file(path) as file:  # given a path, Pillow 13 maps uncompressed TIFFs and garbles rotated grey ones
        return np.asarray(as_it_looks(identified(file)))


def open_file(path: Path) -> IO[bytes]:
    """Open the file at ``path`` for reading; raise OSError, or ValueError if it is empty or not a regular file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # reading a pipe without a writer would block forever
        raise ValueError("not a file")
    if not status.st_size:
        raise ValueError("the file is empty")
    return path.open("rb")


def identified(file: IO[bytes]) -> Image.Image:
    """Open the image in an open file without decoding pixels; format and size are those of its header."""
    try:
        return Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError("not an image of a known format") from None  # Pillow's message shows Python objects
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)  # Pillow warns at half of it
        raise ValueError(f"its header says that it has more than {most:,} pixels") from None


def as_it_looks(image: Image.Image) -> Image.Image:
    """Convert a PIL image to upright RGB; returned unchanged if it already is.

    EXIF orientation is applied, transparency is composed on white, and deep grey is scaled to 8 bits.
    """
    image.load()  # metadata may follow the pixels
    turn = _TURNS.get(_orientation(image))
    upright = image if turn is None else image.transpose(turn)  # ImageOps.exif_transpose fails on other tags' values
    if upright.mode.startswith(("I", "F")):
        upright = Image.fromarray(_deep_grey(np.asarray(upright), getattr(image, "tag_v2", {})))
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright)
    return upright if upright.mode == "RGB" else upright.convert("RGB")


_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def _orientation(image: Image.Image) -> Any:
    """Return the EXIF orientation, 1 if the metadata are damaged, which programs that show the image ignore."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # Pillow raises SyntaxError, struct.error and others
        return 1


def _deep_grey(grey: np.ndarray, tiff_tags: Mapping[int, Any]) -> np.ndarray:
    """Scale 12- or 16-bit grey to 8 bits; Pillow's own conversion clips values above 255 to white."""
    bits = tiff_tags.get(TIFF_BITS_PER_SAMPLE, (16,))[0]
    if bits > 16 or grey.dtype.kind == "f" or not 0 <= grey.min() <= grey.max() < 2**bits:
        raise ValueError(f"grey from {grey.min()} to {grey.max()}, and nothing says how much is white")
    white = 2**bits - 1
    scaled = ((grey.astype(np.int64) * 255 + white // 2) // white).astype(np.uint8)
    return 255 - scaled if tiff_tags.get(TIFF_PHOTOMETRIC) == TIFF_WHITE_IS_ZERO else scaled


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """An image that cannot be read, and the reason."""

    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key} ({self.reason})"


def unreadable(key: str, error: Exception) -> Unreadable:
    """Return the image ``key`` with the reason from ``error``, any exception of an image decoder."""
    return Unreadable(key=key, reason=getattr(error, "strerror", None) or str(error) or type(error).__name__)


def cannot_be_read(images: Sequence[Unreadable], total: int, noun: str = "images") -> str:
    """Return the sentence that lists the unreadable ``images``, called ``noun``, out of ``total``."""
    return f"{len(images):,} of {total:,} {noun} cannot be read: {listed([*map(str, images)], '; ')}."


def fitted(image: np.ndarray | Image.Image, short_side: int) -> np.ndarray:
    """Return an image, uint8 [H, W, 3], scaled down to ``short_side``; its aspect ratio is kept."""
    if isinstance(image, np.ndarray):
        if min(image.shape[:2]) <= short_side:
            return image
        image = Image.fromarray(image)
    height, width = fitted_shape(image.height, image.width, short_side)
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def fitted_shape(height: int, width: int, short_side: int) -> tuple[int, int]:
    """Return height and width scaled down to ``short_side``; the long side is rounded down, as by torchvision."""
    short = min(height, width)
    if short <= short_side:
        return height, width
    return int(short_side * height / short), int(short_side * width / short)


# Damage, found without decoding pixels, so that images of sealed test classes may be checked. Damage between the
# header and the end of a file goes unnoticed.

ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}
"""What the last bytes of a file hold, by Pillow's format. Pillow finds a WebP that was cut by itself."""
TAIL = 64  # bytes that are searched for it before the whole file is


def damage_in(path: Path) -> str | None:
    """Describe damage of an image file that is visible without decoding it; raise errors before the first pixel."""
    with open_file(path) as file:
        end = ENDS.get(identified(file).format or "", b"")
        header = file.tell()  # an embedded preview in it has an end too
        size = file.seek(0, os.SEEK_END)
        for start in (max(header, size - TAIL), header) if end else ():
            file.seek(start)
            if end in file.read():
                return None
    return "the file is cut off" if end else None


THREADS = 8  # a network file system answers them in parallel; more would wait for the interpreter lock


@dataclass(frozen=True, kw_only=True)
class HeaderCheck:
    """Result of checking ``looked`` of ``total`` images within ``seconds``."""

    looked: int
    total: int
    seconds: float
    damaged: tuple[Unreadable, ...]

    def sentence(self, what: str) -> str | None:
        """Describe the damage in ``what``, such as "images of test classes"; None if all were checked and are fine."""
        which = f"of {self.total:,} {what}"
        if self.looked < self.total:
            which = f"of the {self.looked:,} {which} that could be checked in {self.seconds:.0f} s"
        if not self.damaged:
            return None if self.looked == self.total else f"None {which} looks damaged."
        look = "looks" if len(self.damaged) == 1 else "look"
        return f"{len(self.damaged):,} {which} {look} damaged: {listed([*map(str, self.damaged)], '; ', shown=5)}."


def inspect(damage_of: Callable[[str], str | None], keys: Sequence[str], *, seconds: float) -> HeaderCheck:
    """Check the images ``keys``, and begin no further one after ``seconds``.

    ``damage_of`` returns or raises what is wrong with one, such as a data set's ``damage``; what is wrong with all is
    an :class:`InvalidInput`.
    """
    end = time.monotonic() + seconds

    def look(key: str) -> list[Unreadable] | None:
        if time.monotonic() > end:
            return None
        try:
            damage = damage_of(key)
        except InvalidInput:
            raise
        except Exception as error:  # image decoders raise anything
            return [unreadable(key, error)]
        return [] if damage is None else [Unreadable(key=key, reason=damage)]

    with ThreadPoolExecutor(THREADS) as pool:
        seen = [found for found in pool.map(look, keys) if found is not None]
    return HeaderCheck(looked=len(seen), total=len(keys), seconds=seconds, damaged=tuple(chain.from_iterable(seen)))
