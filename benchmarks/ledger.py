"""Size and reading time of the ledger of test openings, and how many images look like others.

The first table has openings of test sets of 60,000 images, all of one set or each of another. The second one compares
the two halves of the classes of a data set: the images that look like one of the other half, and those that still look
the same after a change. Run with ``python -m benchmarks ledger FOLDER``, a folder with ``omniglot/images`` and
``grocery/images``; without it only the glyphs are compared.
"""

import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from search.selection import ImageSet, Ledger
from trainables.data.dataset import Dataset
from trainables.data.sets.folders import Folder
from trainables.data.sets.glyphs import Glyphs
from trainables.data.store.contents import image_look

IMAGES, CLASSES = 60_000, 11_316
MOST = 2_000
"""Images of each half of a data set."""

Pixels = NDArray[np.uint8]


def drawn_set(generator: np.random.Generator) -> ImageSet:
    """Return a set of :data:`IMAGES` images in :data:`CLASSES` classes."""
    numbers = generator.integers(0, 2**63, 2 * IMAGES, dtype=np.uint64)
    sizes = np.full(CLASSES, IMAGES // CLASSES, dtype=np.uint64)
    sizes[: IMAGES % CLASSES] += 1
    return ImageSet(sizes_C=sizes, digests_N=numbers[:IMAGES], looks_N=numbers[IMAGES:])


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


def halves(dataset: Dataset, generator: np.random.Generator) -> list[list[Pixels]]:
    """Return at most :data:`MOST` images of each half of the classes."""
    classes = list(dataset.classes().values())
    middle = len(classes) // 2
    parts = []
    for part in (classes[:middle], classes[middle:]):
        keys = [key for keys in part for key in keys]
        parts.append([dataset.read(keys[index]) for index in sorted(generator.permutation(len(keys))[:MOST])])
    return parts


def changes(generator: np.random.Generator) -> dict[str, Callable[[Pixels], Pixels]]:
    """Return ways to change an image."""

    def pixel(image: Pixels) -> Pixels:
        changed = image.copy()
        row, column = (generator.integers(size) for size in image.shape[:2])
        changed[row, column] = 255 - changed[row, column]
        return changed

    def jpeg(image: Pixels) -> Pixels:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=90)
        return np.asarray(Image.open(file).convert("RGB"))

    def smaller(image: Pixels) -> Pixels:
        height, width = image.shape[:2]
        return np.asarray(Image.fromarray(image).resize((width * 3 // 4, height * 3 // 4)))

    return {"one pixel": pixel, "JPEG of quality 90": jpeg, "three quarters of the size": smaller}


def datasets(folder: str | None) -> Iterator[tuple[str, Dataset]]:
    """Yield the data sets by name."""
    yield "glyphs", Glyphs()
    for name in ("omniglot", "grocery") if folder else ():
        yield name, Folder(root=Path(folder or "", name, "images"))


def print_looks(folder: str | None) -> None:
    """Print the share of images that look like one of the other half, and that keep their look."""
    for name, dataset in datasets(folder):
        generator = np.random.default_rng(0)
        first, second = halves(dataset, generator)
        known, looks = {image_look(image) for image in first}, [image_look(image) for image in second]
        changed = {what: [image_look(change(image)) for image in second] for what, change in changes(generator).items()}
        kept = [f"{what} {np.mean(np.array(found) == np.array(looks)):.3f}" for what, found in changed.items()]
        print(
            f"{name}, {len(first)} and {len(second)} images: like one of the other half "
            f"{np.mean([look in known for look in looks]):.4f}; the same look after {', '.join(kept)}"
        )


if __name__ == "__main__":
    print_ledgers()
    print_looks(sys.argv[1] if len(sys.argv) > 1 else None)
