"""Image files, decoded as they look: upright RGB with 8 bits a channel, on white."""

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from trainables.data.dataset import listed

# One image file as it looks: upright, 8 bits a channel, RGB on white.

# torchvision's list, without waiting seconds for the import of torchvision.
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})

_NO_FILE = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}

TIFF_BITS_PER_SAMPLE, TIFF_PHOTOMETRIC, TIFF_WHITE_IS_ZERO = 258, 262, 0


def _deep_grey(grey: np.ndarray, tiff_tags: Mapping[int, Any]) -> np.ndarray:
    """Scale 12- or 16-bit grey to 8 bits; Pillow's own conversion clips all above 255 to white."""
    bits = tiff_tags.get(TIFF_BITS_PER_SAMPLE, (16,))[0]
    if bits > 16 or not 0 <= grey.min() <= grey.max() < 2**bits:
        raise ValueError(f"grey from {grey.min()} to {grey.max()}, and nothing says how much is white")
    white = 2**bits - 1
    scaled = ((grey.astype(np.int64) * 255 + white // 2) // white).astype(np.uint8)
    return 255 - scaled if tiff_tags.get(TIFF_PHOTOMETRIC) == TIFF_WHITE_IS_ZERO else scaled


def read_image(path: Path) -> np.ndarray:
    """Read an image file as uint8, height × width × 3, as it looks.

    Raises:
        Exception: whatever Pillow meets in a damaged file; ValueError for grey without a known white.
    """
    with open_file(path) as file:  # given a path, Pillow 13 maps uncompressed TIFFs and garbles rotated grey ones
        return np.asarray(opened_image(file))


def open_file(path: Path) -> IO[bytes]:
    """The file at ``path``, open for reading.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is empty, or no file: whoever reads a pipe that nobody writes to waits without end.
    """
    status = path.stat()
    if kind := _NO_FILE.get(stat.S_IFMT(status.st_mode)):
        raise ValueError(f"{kind} and no file")
    if not status.st_size:
        raise ValueError("the file is empty")
    return path.open("rb")


def opened_image(file: IO[bytes]) -> Image.Image:
    """The image in an open file, decoded, as :func:`as_it_looks`; errors as above."""
    return as_it_looks(identified(file))


def identified(file: IO[bytes]) -> Image.Image:
    """The image in an open file, of which no pixel is decoded yet: format and size are those of its header.

    Raises:
        ValueError: its format is not known, or it claims to be so large that decoding it would fill the memory.
    """
    try:
        return Image.open(file)
    except UnidentifiedImageError:
        raise ValueError("not an image of a known format") from None  # Pillow's words show Python objects
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)  # Pillow warns from the half
        raise ValueError(f"its header says that it has more than {most:,} pixels") from None


def as_it_looks(image: Image.Image) -> Image.Image:
    """An image of Pillow's in RGB, or itself where it is that already.

    EXIF orientation is applied, transparency is laid on white, and deep grey is scaled.
    """
    image.load()  # what it says of itself may come after its pixels
    is_upright = image.getexif().get(ExifTags.Base.Orientation, 1) == 1
    upright = image if is_upright else ImageOps.exif_transpose(image)  # which copies an upright one
    if upright.mode.startswith(("I", "F")):
        upright = Image.fromarray(_deep_grey(np.asarray(upright), getattr(image, "tag_v2", {})))
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright)
    return upright if upright.mode == "RGB" else upright.convert("RGB")


# Decoded images made to fit, and the sentences on those that cannot be read.


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """An image that cannot be read, and why."""

    key: str
    reason: str


def unreadable(key: str, error: Exception) -> Unreadable:
    """The image ``key``, whose decoder raised ``error``: decoders raise anything."""
    return Unreadable(key=key, reason=getattr(error, "strerror", None) or str(error) or type(error).__name__)


def cannot_be_read(images: Sequence[Unreadable], total: int) -> str:
    """The sentence on ``images``, of ``total`` ones."""
    shown = listed([f"{image.key} ({image.reason})" for image in images], "; ")
    return f"{len(images):,} of {total:,} images cannot be read: {shown}."


def fitted(pixels: np.ndarray, short_side: int) -> np.ndarray:
    """The image, uint8 [H, W, 3], scaled down to this short side where it is larger, its aspect kept."""
    if min(pixels.shape[:2]) <= short_side:
        return pixels
    return np.asarray(fitted_image(Image.fromarray(pixels), short_side))


def fitted_image(image: Image.Image, short_side: int) -> Image.Image:
    """The same of an image of Pillow's."""
    if min(image.size) <= short_side:
        return image
    height, width = resized_shape(image.height, image.width, short_side)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def resized_shape(height: int, width: int, short_side: int) -> tuple[int, int]:
    """Height and width with this short side; the long side is cut to an integer, as torchvision does."""
    if height <= width:
        return short_side, int(short_side * width / height)
    return int(short_side * height / width), short_side
