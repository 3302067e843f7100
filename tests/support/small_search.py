"""A small folder of images, and a small search on it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainables.data.sets.glyphs import Glyphs

SearchFile = Callable[..., dict[str, Any]]
"""A function that makes a search file with changes."""

GLYPHS: dict[str, Any] = {
    "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 6, "size": 20},
    "training": {"epochs": 1, "batch_size": 10, "images_per_class": 5, "image_size": 16},
    "model": {"embedding_dim": 8},
    "losses": ["pnp", "triplet"],
    "search": {"trials": 2},
    "selection": {"finalists": 1, "seeds": 1},
}
"""A search of a second on drawn images, without its name and its final trainings."""

SHORTEST: dict[str, Any] = {
    "training": {"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
    "losses": ["pnp"],
    "search": {"trials": 1},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 1},
}
"""What makes :func:`small_search` as short as possible."""


def draw_folder(root: Path, classes: int = 16, images: int = 10, size: int = 20) -> Path:
    """Write a folder data set of noise; each class has its own mean colour, so that a model can learn it."""
    generator = np.random.default_rng(0)
    for number in range(classes):
        folder = root / f"class-{number:02d}"
        folder.mkdir(parents=True)
        colour = generator.integers(0, 256, 3)
        for image in range(images):
            pixels = np.clip(colour + generator.normal(0, 40, (size, size, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{image:02d}.png")
    return root


def draw_glyphs(root: Path, each: int = 10) -> Path:
    glyphs = Glyphs(num_classes=16, images_per_class=each, centres=2, size=20)
    for name, keys in glyphs.classes().items():
        for number, key in enumerate(keys):
            path = root / name / f"{number:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(glyphs.read(key)).save(path)
    return root


@contextmanager
def unreadable(*folders: Path) -> Iterator[None]:
    """Replace the content of every file of ``folders`` by garbage meanwhile."""
    kept = {path: path.read_bytes() for folder in folders for path in folder.iterdir()}
    for path in kept:
        path.write_bytes(b"garbage")
    yield
    for path, content in kept.items():
        path.write_bytes(content)


def small_search(root: Path, **changes: Any) -> dict[str, Any]:
    """Return a small search file: 8 classes train and validate (6 and 2), 8 are held out."""
    return {
        "name": "small",
        "dataset": {"name": "folder", "root": str(root)},
        "model": {"embedding_dim": 8},
        "training": {"epochs": 3, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        "losses": ["proxy_anchor", "pnp"],
        "search": {"trials": 3},
        "selection": {"finalists": 1, "seeds": 2},
        "final": {"seeds": 2},
        **changes,
    }


def save_resnet(folder: Path) -> Path:
    """Write a file with the weights of a torchvision ResNet-18 that nobody trained."""
    import torch
    import torchvision

    path = folder / "resnet18.pth"
    with torch.random.fork_rng():
        torch.manual_seed(3)
        torch.save(torchvision.models.resnet18(weights=None).state_dict(), path)
    return path
