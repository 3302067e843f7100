"""Image files checked for damage without decoding pixels, so that images of sealed test classes may be checked.

Damage between the header and the end of a file goes unnoticed.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trainables.data.images import Unreadable, identified, open_file, unreadable
from trainables.errors import InvalidInput, listed

ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}
"""What the last bytes of a file hold, by Pillow's format. Pillow finds a WebP that was cut by itself."""
TAIL = 64
"""Bytes that are searched for it before the whole file is."""


def damage_in(path: Path) -> str | None:
    """Describe damage of an image file that is visible without decoding it, or return None.

    Raises:
        Exception: an error that decoding would raise before the first pixel.
    """
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
SHOWN = 5


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
        shown = listed([f"{image.key} ({image.reason})" for image in self.damaged], "; ", shown=SHOWN)
        return f"{len(self.damaged):,} {which} {'looks' if len(self.damaged) == 1 else 'look'} damaged: {shown}."


def inspect(damage_of: Callable[[str], str | None], keys: Sequence[str], *, seconds: float) -> HeaderCheck:
    """Check the images ``keys``, and begin no further one after ``seconds``.

    ``damage_of`` returns or raises what is wrong with one, such as a data set's ``damage``, which decodes none.

    Raises:
        InvalidInput: the function raises it, since it is wrong with all.
    """
    end = time.monotonic() + seconds

    def look(key: str) -> Unreadable | bool | None:
        if time.monotonic() > end:
            return False
        try:
            damage = damage_of(key)
        except InvalidInput:
            raise
        except Exception as error:  # image decoders raise anything
            return unreadable(key, error)
        return None if damage is None else Unreadable(key=key, reason=damage)

    with ThreadPoolExecutor(THREADS) as pool:
        seen = [found for found in pool.map(look, keys) if found is not False]
    damaged = tuple(found for found in seen if isinstance(found, Unreadable))
    return HeaderCheck(looked=len(seen), total=len(keys), seconds=seconds, damaged=damaged)
