"""Size and reading time of the ledger of test openings.

Its openings are of test sets of 60,000 images, all of one set or each of another: ``python -m benchmarks ledger``.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from search.selection import ImageSet, Ledger

IMAGES, CLASSES = 60_000, 11_316


def drawn_set(generator: np.random.Generator) -> ImageSet:
    """Return a set of :data:`IMAGES` images in :data:`CLASSES` classes."""
    numbers = generator.integers(0, 2**63, IMAGES, dtype=np.uint64)
    sizes = np.full(CLASSES, IMAGES // CLASSES, dtype=np.uint64)
    sizes[: IMAGES % CLASSES] += 1
    return ImageSet(sizes_C=sizes, digests_N=numbers)


def print_ledgers() -> None:
    """Print the size of the ledger and the time to open a test set and to describe it."""
    generator = np.random.default_rng(0)
    for openings, sets in ((1, 1), (100, 1), (100, 100)):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = f"{folder}/state"
            ledger = Ledger(Path(folder, "runs", "test_openings.jsonl"))
            drawn = [drawn_set(generator) for _ in range(sets)]
            for number in range(openings):
                start = time.perf_counter()
                opening = ledger.open(
                    test_digest="names",
                    search="one",
                    selections={"one": f"{number:064x}"},
                    configurations={"one": 2},
                    studies={"one/mpa@final": "0" * 64},
                    reason="its own test stage",
                )
                opening = ledger.read(opening, drawn[number % sets])
                written = time.perf_counter() - start
            start = time.perf_counter()
            ledger.openings()
            listed = time.perf_counter() - start
            start = time.perf_counter()
            ledger.sentence(opening)
            described = time.perf_counter() - start
            bytes_of = [
                sum(path.stat().st_size for path in Path(folder, "runs").rglob(name)) for name in ("*.jsonl", "*")
            ]
            print(
                f"{openings} openings of {sets} sets of {IMAGES:,} images: lines {bytes_of[0]:,} bytes, all "
                f"{bytes_of[1]:,}; the last opening {written:.2f} s, reading {listed * 1e3:.0f} ms, "
                f"with what was opened before {described:.2f} s"
            )


if __name__ == "__main__":
    print_ledgers()
