"""Glyphs: a synthetic data set of drawn signs, with several *centres* (distinct shapes) per class.

A glyph is a few curved strokes from one alphabet shared by all classes. The centres of a class share only their first
stroke, so that a class forms one cluster per centre, and each of its strokes also occurs in other classes. Images of a
centre differ in pose (rotation, scale, shear, shift), in the bend of each stroke, in stroke width, colours and noise.

Every pixel is the same on every machine: all random numbers are bytes of SHAKE-256, and they are processed with
elementwise +, -, ×, ÷ and √ only, whose rounding IEEE 754 defines.

Legend: H, W pixels; S strokes; P points along a stroke; 2 is (x, y) in units of the glyph's own height.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import ClassVar

import numpy as np

from trainables.common.errors import raise_if_any
from trainables.data.dataset import Dataset

DRAWING = 1  # increased whenever the same parameters draw different pixels

ALPHABET, STROKES, POINTS = 60, 3, 9
HEIGHT = 0.62  # of the glyph, as a fraction of the image height

LISTS = {"small": 1, "medium": 2, "large": 3}  # thirds of the test classes, of which there are FEWEST_WITH_LISTS
FEWEST_WITH_LISTS = 6
MINIMUM = {"num_classes": 1, "centres": 1, "images_per_class": 1, "size": 16, "seed": 0}


class _Draws:
    """Stream of uniform random numbers that depends only on a name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._taken = 0

    def __call__(self, low: float, high: float, *shape: int) -> np.ndarray:
        count = int(np.prod(shape))
        self._taken += 1
        data = hashlib.shake_256(f"{self._name}/{self._taken}".encode()).digest(4 * count)
        return low + (high - low) * (np.frombuffer(data, dtype="<u4").reshape(shape) / 2.0**32)


def _stroke(name: str) -> np.ndarray:
    """Return control points of a quadratic Bézier curve in the unit square, [3, 2], with distant ends."""
    candidates = _Draws(name)(-0.5, 0.5, 16, 3, 2)
    across = candidates[:, 2] - candidates[:, 0]
    long_enough = across[:, 0] ** 2 + across[:, 1] ** 2 > 0.45**2
    return candidates[int(np.argmax(long_enough))]


def _choose(name: str, count: int, among: list[int]) -> list[int]:
    order = _Draws(name)(0, 1, len(among))
    return [among[int(index)] for index in np.argsort(order, kind="stable")[:count]]


def _affine(draws: _Draws) -> Iterator[float]:
    """Yield the four entries of a matrix that rotates by up to 10°, shears and scales."""
    tangent = float(draws(-0.09, 0.09))  # of half the angle: avoids library functions for sine and cosine
    cosine, sine = (1 - tangent**2) / (1 + tangent**2), 2 * tangent / (1 + tangent**2)
    shear = float(draws(-0.12, 0.12))
    across, along = (float(scale) for scale in draws(0.85, 1.15, 2))
    yield from (across * cosine, along * (shear * cosine - sine))
    yield from (across * sine, along * (shear * sine + cosine))


def _distance(points_SP2: np.ndarray, size: int) -> np.ndarray:
    """Return the distance of each pixel's centre to the nearest stroke, [H, W]; points are in pixels."""
    centres = np.arange(size) + 0.5
    x, y = centres[None, None, :], centres[None, :, None]
    start, end = points_SP2[:, :-1].reshape(-1, 2, 1, 1), points_SP2[:, 1:].reshape(-1, 2, 1, 1)
    (x0, y0), (dx, dy) = (start[:, 0], start[:, 1]), ((end - start)[:, 0], (end - start)[:, 1])
    along = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy + 1e-9)
    along = np.clip(along, 0, 1)
    squared = (x - x0 - along * dx) ** 2 + (y - y0 - along * dy) ** 2
    return np.sqrt(squared.min(axis=0))


@dataclass(frozen=True, kw_only=True)
class Glyphs(Dataset):
    """Signs drawn on squares of ``size`` pixels; the images of a class cycle through its ``centres``."""

    summary: ClassVar[str] = "signs drawn by code, several distinct shapes a class; needs no files"
    publisher: ClassVar[str] = "drawn by this program"
    layout: ClassVar[str] = "no folder"

    num_classes: int = field(default=96, metadata={"about": "how many classes"})
    centres: int = field(default=3, metadata={"about": "distinct shapes a class"})
    images_per_class: int = field(default=24, metadata={"about": "how many images a class, cycling through its shapes"})
    size: int = field(default=40, metadata={"about": "height and width in pixels"})
    seed: int = field(default=0, metadata={"about": "other seeds draw other signs"})
    test_lists: bool = field(
        default=False, metadata={"about": "score the first third and two thirds of the test classes too, as VehicleID"}
    )

    def __post_init__(self) -> None:
        sentences = [
            f"dataset.{name} must be a whole number of at least {least}; it is {getattr(self, name)!r}."
            for name, least in MINIMUM.items()
            if type(getattr(self, name)) is not int or getattr(self, name) < least
        ]
        if not sentences and self.images_per_class < self.centres:
            why = f"{self.images_per_class}, but each of the {self.centres} centres of a class needs an image"
            sentences.append(f"dataset.images_per_class is {why}. Lower dataset.centres or raise it.")
        if type(self.test_lists) is not bool:
            sentences.append(f"dataset.test_lists must be true or false; it is {self.test_lists!r}.")
        elif not sentences and self.test_lists and (test := len(self._test_classes())) < FEWEST_WITH_LISTS:
            sentences.append(
                f"dataset.test_lists needs at least {FEWEST_WITH_LISTS} test classes, two in the smallest list; "
                f"dataset.num_classes of {self.num_classes} leaves {test}. Raise dataset.num_classes."
            )
        raise_if_any(sentences)

    def classes(self) -> dict[str, tuple[str, ...]]:
        names = [f"glyph-{index:03d}" for index in range(self.num_classes)]
        images = range(self.images_per_class)
        return {name: tuple(f"{name}/{index:03d}" for index in images) for name in names}

    def identity(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in asdict(self).items() if name != "test_lists")
        return f"glyphs drawing {DRAWING}, {options}"

    def _test_classes(self) -> tuple[str, ...]:
        return tuple(self.classes())[self.num_classes // 2 :]

    def test_subsets(self) -> dict[str, tuple[str, ...]]:
        """Return thirds of the test classes with ``test_lists``, as VehicleID's of 800, 1,600 and 2,400; else none."""
        test = self._test_classes()
        return {name: test[: len(test) * part // 3] for name, part in LISTS.items()} if self.test_lists else {}

    def stamp(self, key: str) -> str:
        return self.identity()

    def _strokes(self, name: str, centre: int) -> np.ndarray:
        """Return the control points of a centre's strokes, [S, 3, 2]."""
        seeded = f"{self.seed}/{name}"
        (common,) = _choose(f"{seeded}/common", 1, list(range(ALPHABET)))
        rest = [stroke for stroke in range(ALPHABET) if stroke != common]
        chosen = [common, *_choose(f"{seeded}/{centre}", STROKES - 1, rest)]
        return np.stack([_stroke(f"{self.seed}/stroke {stroke}") for stroke in chosen])

    def read(self, key: str) -> np.ndarray:
        name, _, index = key.partition("/")
        strokes_S32 = self._strokes(name, int(index) % self.centres)
        draws = _Draws(f"{self.seed}/{key}/{self.size}")

        bends = draws(-0.04, 0.04, *strokes_S32.shape)
        first, second, third = (point[:, None] for point in np.moveaxis(strokes_S32 + bends, 1, 0))
        t = (np.arange(POINTS) / (POINTS - 1))[None, :, None]
        points_SP2 = (1 - t) ** 2 * first + 2 * t * (1 - t) * second + t**2 * third

        xx, xy, yx, yy = _affine(draws)
        x, y = points_SP2[..., 0], points_SP2[..., 1]
        posed_SP2 = np.stack([xx * x + xy * y, yx * x + yy * y], axis=-1)
        shift = draws(-0.05, 0.05, 2)
        distance_HW = _distance(self.size * (0.5 + HEIGHT * posed_SP2 + shift), self.size)

        radius = self.size * float(draws(0.015, 0.045))
        coverage = np.clip(radius + 0.5 - distance_HW, 0, 1)[..., None]
        paper, ink = draws(180, 255, 3), draws(0, 75, 3)
        noise = draws(-1, 1, 4, self.size, self.size, 3).sum(axis=0) * float(draws(5, 20))
        return np.clip(np.floor(paper + (ink - paper) * coverage + noise + 0.5), 0, 255).astype(np.uint8)
