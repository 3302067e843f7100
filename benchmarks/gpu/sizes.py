"""How large everything is: as in the papers on a GPU, and tiny on a CPU, where it only shows that it runs."""

import importlib.util
from dataclasses import dataclass

import torch

TIMM = ("timm:vit_small_patch16_224",) if importlib.util.find_spec("timm") else ()


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """``networks`` are the papers'; ``gallery`` and ``clusters`` are SOP's test images and classes.

    ``seconds`` is how long each row is timed, ``steps`` at a time, and ``workers`` are those of a DataLoader.
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
    """Those of the papers where there is a GPU."""
    return ON_GPU if device.type == "cuda" else ON_CPU
