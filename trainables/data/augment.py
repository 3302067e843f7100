"""Augmentations by name. The functions themselves are in :mod:`trainables.data.crops`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from trainables.data.crops import Crops


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Input of a network: squares of ``side`` pixels, cropped from resized images.

    Images are resized to a short side of ``short_side`` pixels, keeping their aspect ratio, as by torchvision's
    ``Resize(short_side)``; with ``square`` both sides get that length, as by ``Resize((short_side, short_side))``.
    """

    side: int
    short_side: int
    square: bool = False


@dataclass(frozen=True, kw_only=True)
class AugmentationRow(PartRow):
    """An augmentation: the function that draws the crop boxes. ``resizes`` if images are first resized to the frame."""

    resizes: bool = True


DrawCrops: TypeAlias = "Callable[[Tensor, Frame, Generator | None], Crops]"

_ROWS = {
    "none": AugmentationRow(path="trainables.data.crops:none"),
    "crop": AugmentationRow(path="trainables.data.crops:crop"),
    "crop_flip": AugmentationRow(path="trainables.data.crops:crop_flip"),
    "resized_crop_flip": AugmentationRow(path="trainables.data.crops:resized_crop_flip", resizes=False),
}

AUGMENTATIONS: PartTable[DrawCrops, AugmentationRow] = PartTable("augmentation", _ROWS)


def short_side_needed(name: str, frame: Frame, store_size: int) -> int:
    """Return the short side, in pixels, that a store must keep for this augmentation and for evaluation."""
    return min(store_size, frame.short_side) if AUGMENTATIONS.rows[name].resizes else store_size
