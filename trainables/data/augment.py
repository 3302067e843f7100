"""Augmentation by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from trainables.data.crops import Crops


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What a network sees: squares of ``side`` pixels, cut from images that are resized first.

    Resized images keep their aspect and have a short side of ``short_side`` pixels, as after torchvision's
    ``Resize(short_side)``; with ``square`` both sides are that long, whatever the aspect was, as after
    ``Resize((short_side, short_side))``.
    """

    side: int
    short_side: int
    square: bool = False


@dataclass(frozen=True, kw_only=True)
class AugmentationRow(PartRow):
    """The function that draws the boxes; ``resizes``: the images are resized as the frame says first."""

    summary: str
    resizes: bool


DrawCrops: TypeAlias = "Callable[[Tensor, Frame, Generator | Sequence[Generator] | None], Crops]"

_ROWS = {
    "none": AugmentationRow(path="trainables.data.crops:none", summary="resize, centre crop", resizes=True),
    "crop": AugmentationRow(path="trainables.data.crops:crop", summary="resize, random crop", resizes=True),
    "crop_flip": AugmentationRow(
        path="trainables.data.crops:crop_flip", summary="resize, random crop, flip", resizes=True
    ),
    "resized_crop_flip": AugmentationRow(
        path="trainables.data.crops:resized_crop_flip",
        summary="random resized crop (Szegedy et al., 2015), flip",
        resizes=False,
    ),
}

AUGMENTATIONS: PartTable[DrawCrops, AugmentationRow] = PartTable("augmentation", _ROWS)


def short_side_needed(name: str, frame: Frame, store_size: int) -> int:
    """The short side, in pixels, that a store must keep for this augmentation and for evaluation."""
    return min(store_size, frame.short_side) if AUGMENTATIONS.rows[name].resizes else store_size
