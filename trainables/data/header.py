"""An image file from outside: its format, its size and whether its end is there. No pixel is decoded.

So images of sealed classes may be looked at. What lies between a file's header and its end can still be damaged.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import IO

from PIL import BmpImagePlugin, Image, PpmImagePlugin, TiffImagePlugin

from trainables.data.images import identified, open_file

PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
JPEG_START_OF_SCAN, JPEG_END = 0xDA, b"\xff\xd9"
GIF_END = b";"
TIFF_PARTS = ((273, 279), (324, 325))  # the offsets and the lengths of strips, and of tiles
PPM_BITS = {"1;I": 1, "L": 8, "RGB": 24, "I;16B": 16}  # of a pixel, by Pillow's raw mode
TAIL = 64  # bytes that are read for what a file ends with


def damage_in(path: Path) -> str | None:
    """What shows to be wrong with an image file before it is decoded; None where nothing does.

    Of a PNG, a BMP and a GIF the last bytes hold no pixel: without them it is called cut off, and may be decodable.

    Raises:
        Exception: what decoding it would raise before the first pixel.
    """
    with open_file(path) as file:
        image = identified(file)
        is_whole = _IS_WHOLE.get(image.format or "")
        if is_whole is None or is_whole(image, file, os.fstat(file.fileno()).st_size):
            return None
    return "the file is cut off"


def _tail(file: IO[bytes], size: int) -> bytes:
    """How a file ends, without the zeros that some programs and disks append."""
    file.seek(max(0, size - TAIL))
    return file.read().rstrip(b"\0")


def _jpeg(_: Image.Image, file: IO[bytes], size: int) -> bool:
    """Its end comes after its pixels; a preview in its header has an end too, and programs append what they like."""
    if _tail(file, size).endswith(JPEG_END):
        return True
    position, marker = 2, 0
    while marker != JPEG_START_OF_SCAN:
        file.seek(position)
        segment = file.read(4)
        if len(segment) < 4:
            return False
        marker = segment[1]
        is_fill = segment[0] == marker == 0xFF
        position += 1 if is_fill else 2 + int.from_bytes(segment[2:], "big")
    file.seek(position)
    return JPEG_END in file.read()


def _png(_: Image.Image, file: IO[bytes], size: int) -> bool:
    if _tail(file, size).endswith(PNG_END):
        return True
    position = 8
    while position + 8 <= size:
        file.seek(position)
        length, kind = struct.unpack(">I4s", file.read(8))
        if kind == b"IEND":
            return True
        position += 12 + length
    return False


def _gif(_: Image.Image, file: IO[bytes], size: int) -> bool:
    return _tail(file, size).endswith(GIF_END)


def _tiff(image: Image.Image, _: IO[bytes], size: int) -> bool:
    assert isinstance(image, TiffImagePlugin.TiffImageFile)
    tags = image.tag_v2
    parts = [zip(tags.get(offsets, ()), tags.get(lengths, ())) for offsets, lengths in TIFF_PARTS]
    return all(offset + length <= size for part in parts for offset, length in part)


def _raw(image: Image.Image, _: IO[bytes], size: int) -> bool:
    """Rows of pixels as they are: what the header claims has to follow it."""
    assert isinstance(image, BmpImagePlugin.BmpImageFile | PpmImagePlugin.PpmImageFile)
    for tile in image.tile:
        mode, row = tile.args[:2] if isinstance(tile.args, tuple) else (str(tile.args), 0)
        row = row or -(-image.width * PPM_BITS.get(mode, 0) // 8)
        padding = 3 if image.format == "BMP" else 0  # at most, which it puts behind the last row as well
        needed = row * image.height - padding if tile.codec_name == "raw" else 1
        if tile.offset + needed > size:
            return False
    return True


# The decoder needs the whole of a WebP to say what it is, and has found a cut before.
_IS_WHOLE: dict[str, Callable[[Image.Image, IO[bytes], int], bool]] = {
    "JPEG": _jpeg,
    "MPO": _jpeg,
    "PNG": _png,
    "GIF": _gif,
    "TIFF": _tiff,
    "BMP": _raw,
    "PPM": _raw,
}
