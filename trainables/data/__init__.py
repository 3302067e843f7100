"""Data sets, class splits, the shared image store, augmentation and batch samplers.

The tables have the data sets and the augmentations by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainables.common.part_tables import PartRow, PartTable
from trainables.data.dataset import Dataset

DATASETS: PartTable[type[Dataset], PartRow] = PartTable("data set", {
    "glyphs": PartRow(path="trainables.data.sets.glyphs:Glyphs"),
    "folder": PartRow(path="trainables.data.sets.folders:Folder"),
    "manifest": PartRow(path="trainables.data.sets.manifest:Manifest"),
    "features": PartRow(path="trainables.data.sets.features:FeatureFile"),
    "omniglot": PartRow(path="trainables.data.sets.benchmarks:Omniglot"),
    "cub200": PartRow(path="trainables.data.sets.benchmarks:CUB200"),
    "cars196": PartRow(path="trainables.data.sets.benchmarks:Cars196"),
    "sop": PartRow(path="trainables.data.sets.benchmarks:SOP"),
    "inshop": PartRow(path="trainables.data.sets.benchmarks:InShop"),
    "vehicleid": PartRow(path="trainables.data.sets.benchmarks:VehicleID"),
    "inaturalist": PartRow(path="trainables.data.sets.benchmarks:INaturalist"),
}, base="trainables.data.dataset:Dataset")  # fmt: skip


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


AUGMENTATIONS: PartTable[Callable[..., Any], AugmentationRow] = PartTable("augmentation", {
    "none": AugmentationRow(path="trainables.data.loading:none"),
    "crop": AugmentationRow(path="trainables.data.loading:crop"),
    "crop_flip": AugmentationRow(path="trainables.data.loading:crop_flip"),
    "resized_crop_flip": AugmentationRow(path="trainables.data.loading:resized_crop_flip", resizes=False),
})  # fmt: skip


def short_side_needed(name: str, frame: Frame, store_size: int) -> int:
    """Return the short side, in pixels, that a store must keep for this augmentation and for evaluation."""
    return min(store_size, frame.short_side) if AUGMENTATIONS.rows[name].resizes else store_size
