"""Sizes of the benchmarks: as in the papers on a GPU, and tiny on a CPU as a smoke test."""

import importlib.util
from dataclasses import dataclass

import torch

TIMM = ("timm:vit_small_patch16_224",) if importlib.util.find_spec("timm") else ()


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes; ``networks`` are the papers', ``gallery`` and ``clusters`` the numbers of SOP's test images and classes.

    Each row is timed for ``seconds``, ``steps`` steps at a time; ``workers`` is the number of DataLoader workers.
    """

    side: int
    short_side: int
    photographs: int
    batch: int
    networks: tuple[str, ...]
    gallery: int
    clusters: int
    dimensions: int
    steps: int
    seconds: float
    workers: int


ON_GPU = Sizes(
    side=224, short_side=256, photographs=1024, batch=128,
    networks=("bninception", "resnet50", "googlenet", "resnet18", *TIMM),
    gallery=60_502, clusters=11_316, dimensions=512, steps=10, seconds=5, workers=16,
)  # fmt: skip
ON_CPU = Sizes(
    side=32, short_side=36, photographs=24, batch=8, networks=("convnet",),
    gallery=300, clusters=40, dimensions=16, steps=1, seconds=0, workers=1,
)  # fmt: skip


def sizes_for(device: torch.device) -> Sizes:
    """Return the papers' sizes on a GPU, tiny ones on a CPU."""
    return ON_GPU if device.type == "cuda" else ON_CPU
