"""Image files checked for damage without decoding pixels: format, size and truncation.

Only the header and the end of a file are read, so images of sealed test classes may be checked. Damage between the two
goes unnoticed.
"""

import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import IO

from PIL import BmpImagePlugin, Image, PpmImagePlugin, TiffImagePlugin

from trainables.data.dataset import Dataset
from trainables.data.images import Unreadable, identified, open_file, unreadable
from trainables.errors import listed

PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
JPEG_START_OF_SCAN, JPEG_END = 0xDA, b"\xff\xd9"
GIF_END = b";"
TIFF_PARTS = ((273, 279), (324, 325))  # tags of offsets and lengths, of strips and of tiles
PPM_BITS = {"1;I": 1, "L": 8, "RGB": 24, "I;16B": 16}  # bits per pixel of Pillow's raw modes
TAIL = 64  # bytes searched for an end marker


def damage_in(path: Path) -> str | None:
    """Describe damage of an image file that is visible without decoding it, or return None.

    The last bytes of a PNG, a BMP and a GIF hold no pixel: a file without them is reported although it may be
    decodable.

    Raises:
        Exception: an error that decoding would raise before the first pixel.
    """
    with open_file(path) as file:
        image = identified(file)
        is_whole = _IS_WHOLE.get(image.format or "")
        if is_whole is None or is_whole(image, file, os.fstat(file.fileno()).st_size):
            return None
    return "the file is cut off"


def _tail(file: IO[bytes], size: int) -> bytes:
    """Return the end of a file, without the zeros that some programs and disks append."""
    file.seek(max(0, size - TAIL))
    return file.read().rstrip(b"\0")


def _jpeg(_: Image.Image, file: IO[bytes], size: int) -> bool:
    """Search for the end marker after the header, since an embedded preview has one too; data may follow it."""
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
    """Check that uncompressed rows of pixels are as long as the header claims."""
    assert isinstance(image, BmpImagePlugin.BmpImageFile | PpmImagePlugin.PpmImageFile)
    for tile in image.tile:
        mode, row = tile.args[:2] if isinstance(tile.args, tuple) else (str(tile.args), 0)
        row = row or -(-image.width * PPM_BITS.get(mode, 0) // 8)
        padding = 3 if image.format == "BMP" else 0  # at most, and after the last row as well
        needed = row * image.height - padding if tile.codec_name == "raw" else 1
        if tile.offset + needed > size:
            return False
    return True


# Pillow needs a complete WebP file to identify it, so truncation is detected before this.
_IS_WHOLE: dict[str, Callable[[Image.Image, IO[bytes], int], bool]] = {
    "JPEG": _jpeg,
    "MPO": _jpeg,
    "PNG": _png,
    "GIF": _gif,
    "TIFF": _tiff,
    "BMP": _raw,
    "PPM": _raw,
}


THREADS = 8  # a network file system answers them in parallel; more would wait for the interpreter lock
SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class HeaderCheck:
    """Result of checking ``looked`` of ``total`` images within ``seconds``."""

    looked: int
    total: int
    seconds: float
    damaged: tuple[Unreadable, ...]

    def sentence(self, classes: str) -> str | None:
        """Describe the damage found in ``classes``, as in "test classes"; None if all were checked and are fine."""
        of = f"{self.total:,}"
        if self.looked < self.total:
            of = f"the {self.looked:,} of {self.total:,}"
        which = f"of {of} images of {classes}"
        if self.looked < self.total:
            which += f" that could be checked in {self.seconds:.0f} s"
        if not self.damaged:
            return None if self.looked == self.total else f"None {which} looks damaged."
        shown = listed([f"{image.key} ({image.reason})" for image in self.damaged], "; ", shown=SHOWN)
        return f"{len(self.damaged):,} {which} {'looks' if len(self.damaged) == 1 else 'look'} damaged: {shown}."


def inspect_headers(dataset: Dataset, keys: Sequence[str], *, seconds: float) -> HeaderCheck:
    """Check the images ``keys`` without decoding them, for at most ``seconds`` even if the file system hangs."""
    end = time.monotonic() + seconds
    found: dict[int, Unreadable | None] = {}
    waiting, lock = iter(enumerate(keys)), Lock()

    def work() -> None:
        while time.monotonic() < end:
            with lock:
                number, key = next(waiting, (-1, ""))
            if number < 0:
                return
            image = _look(dataset, key)
            with lock:
                found[number] = image

    threads = [Thread(target=work, daemon=True) for _ in range(min(THREADS, len(keys)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    with lock:
        seen = sorted(found.items())
    damaged = tuple(image for _, image in seen if image is not None)
    return HeaderCheck(looked=len(seen), total=len(keys), seconds=seconds, damaged=damaged)


def _look(dataset: Dataset, key: str) -> Unreadable | None:
    try:
        damage = dataset.damage(key)
    except Exception as error:  # image decoders raise anything
        return unreadable(key, error)
    return None if damage is None else Unreadable(key=key, reason=damage)
