"""Decoded images made to fit, and the sentences on those that cannot be read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from trainables.data.listing import listed


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """An image that cannot be read, and why."""

    key: str
    reason: str


def unreadable(key: str, error: Exception) -> Unreadable:
    """The image ``key``, whose decoder raised ``error``: decoders raise anything."""
    return Unreadable(key=key, reason=getattr(error, "strerror", None) or str(error) or type(error).__name__)


def cannot_be_read(images: Sequence[Unreadable], total: int) -> str:
    """The sentence on ``images``, of ``total`` ones."""
    shown = listed([f"{image.key} ({image.reason})" for image in images], "; ")
    return f"{len(images):,} of {total:,} images cannot be read: {shown}."


def fitted(pixels: np.ndarray, short_side: int) -> np.ndarray:
    """The image, uint8 [H, W, 3], scaled down to this short side where it is larger, its aspect kept."""
    if min(pixels.shape[:2]) <= short_side:
        return pixels
    return np.asarray(fitted_image(Image.fromarray(pixels), short_side))


def fitted_image(image: Image.Image, short_side: int) -> Image.Image:
    """The same of an image of Pillow's."""
    if min(image.size) <= short_side:
        return image
    height, width = resized_shape(image.height, image.width, short_side)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def resized_shape(height: int, width: int, short_side: int) -> tuple[int, int]:
    """Height and width with this short side; the long side is cut to an integer, as torchvision does."""
    if height <= width:
        return short_side, int(short_side * width / height)
    return int(short_side * height / width), short_side
