"""What is known of a backbone before it is built."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

Colour = tuple[float, float, float]

IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_SCALE: Colour = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Published:
    """Weights that somebody publishes at ``address``, and the name of the ``file`` they are kept in here."""

    address: str
    file: str


def published(address: str) -> Published:
    """Weights that are kept under the name they are published by."""
    return Published(address=address, file=address.rsplit("/", 1)[1])


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """``build()`` gives a fresh module from images [B, 3, H, W] to maps [B, ``features``, h, w].

    The module wants images in 0 … 1 less ``mean``, over ``scale`` (both red, green, blue), and then the channels as
    blue, green, red where ``bgr`` says so. ``imagenet`` are its ImageNet weights, where somebody publishes them.
    ``numbers`` says how many its state holds (weights and running statistics), where that is known before it is built.
    """

    summary: str
    build: "Callable[[], nn.Module]"
    features: int
    mean: Colour
    scale: Colour
    bgr: bool = False
    imagenet: Published | None = None
    numbers: int | None = None
