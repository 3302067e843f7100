"""A user-defined data set: rings drawn by code, where a class is a radius and a width.

In a search file, with the repository's root on ``PYTHONPATH``:

    dataset: {name: "examples.rings:Rings", num_classes: 40}

``holdout check examples.rings:Rings`` checks it against the contract of every data set.
"""

import hashlib
from dataclasses import asdict, dataclass, field
from typing import ClassVar

import numpy as np

from holdout.parts import Dataset, InvalidInput


@dataclass(frozen=True, kw_only=True)
class Rings(Dataset):
    """Rings on noise, near the centre of the image; a class shares its radius and width."""

    summary: ClassVar[str] = "rings of many widths, drawn by code"
    publisher: ClassVar[str] = "this program"
    layout: ClassVar[str] = "no folder: there is nothing to give"

    num_classes: int = field(default=32, metadata={"about": "how many classes"})
    images_per_class: int = field(default=12, metadata={"about": "how many images a class"})
    size: int = field(default=32, metadata={"about": "height and width in pixels"})

    def __post_init__(self) -> None:
        if min(self.num_classes, self.images_per_class) < 1 or self.size < 16:
            raise InvalidInput(
                "dataset.num_classes and dataset.images_per_class must be at least 1 and dataset.size at least 16; "
                f"they are {self.num_classes}, {self.images_per_class} and {self.size}."
            )

    def classes(self) -> dict[str, tuple[str, ...]]:
        names = [f"ring-{number:03d}" for number in range(self.num_classes)]
        return {name: tuple(f"{name}/{image:03d}" for image in range(self.images_per_class)) for name in names}

    def identity(self) -> str:
        return f"rings, {asdict(self)}"

    def stamp(self, key: str) -> str:
        return self.identity()

    def read(self, key: str) -> np.ndarray:
        name, _, _ = key.partition("/")
        random = np.random.default_rng(list(hashlib.sha256(key.encode()).digest()))
        share = int(name.removeprefix("ring-")) / self.num_classes
        radius, width = self.size * (0.1 + 0.3 * share), 1 + 3 * (7 * share % 1)
        centre = self.size / 2 + random.uniform(-0.1, 0.1, 2) * self.size
        y, x = np.mgrid[: self.size, : self.size]
        distance = np.hypot(y - centre[0], x - centre[1])
        ring = np.clip(width - np.abs(distance - radius), 0, 1)[..., None]
        pixels = 60 + ring * random.uniform(100, 180, 3) + random.normal(0, 8, (self.size, self.size, 3))
        return np.clip(pixels, 0, 255).astype(np.uint8)
