"""Augmentation, batched: which part of each image is seen, and whether mirrored.

Parameters are drawn on the CPU, so that a seed means the same crops on every device; the pixels are resampled
where they lie.

Legend: B images; A attempts; 2 is (height, width); 4 is (top, left, height, width).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.data.resample import Crops, resample

RESIZE = 256 / 224  # the short side an image is resized to before a crop, over the crop's side
AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
ATTEMPTS = 10


def _resize_side(image_size: int) -> int:
    return round(image_size * RESIZE)


def _whole(sizes_B2: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(sizes_B2), sizes_B2], dim=1)


def _resized(sizes_B2: Tensor, short: int) -> Tensor:
    """Sizes after torchvision's ``Resize(short)``, whose long side is cut to an integer."""
    return (short * sizes_B2).div(sizes_B2.amin(dim=1, keepdim=True), rounding_mode="floor")


def _crop_of_resized(sizes_B2: Tensor, image_size: int, offset: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The boxes, in stored pixels, of crops at ``offset(room)`` of the resized images; and their reach."""
    resized_B2 = _resized(sizes_B2, _resize_side(image_size))
    scale_B2 = sizes_B2 / resized_B2
    offset_B2 = offset(resized_B2 - image_size)
    return torch.cat([offset_B2 * scale_B2, image_size * scale_B2], dim=1), _whole(sizes_B2)


def _flips(batch: int, generator: torch.Generator | None) -> Tensor:
    return torch.rand(batch, generator=generator) < 0.5


def _up_to(limit: Tensor, generator: torch.Generator | None) -> Tensor:
    """Whole numbers drawn evenly from 0 … limit."""
    draws = torch.rand(limit.shape, generator=generator, dtype=torch.float64)
    return torch.minimum((draws * (limit + 1)).floor().to(torch.int64), limit)


def none(sizes_B2: Tensor, image_size: int, generator: torch.Generator | None) -> Crops:
    """Resize and centre crop, as evaluation does."""
    boxes, reach = _crop_of_resized(sizes_B2, image_size, lambda room: (room / 2).round())
    return Crops(boxes_B4=boxes, reach_B4=reach, flips_B=torch.zeros(len(sizes_B2), dtype=torch.bool))


def crop_flip(sizes_B2: Tensor, image_size: int, generator: torch.Generator | None) -> Crops:
    """The same resize, a crop anywhere, mirrored half of the time."""
    boxes, reach = _crop_of_resized(sizes_B2, image_size, lambda room: _up_to(room, generator))
    return Crops(boxes_B4=boxes, reach_B4=reach, flips_B=_flips(len(sizes_B2), generator))


def resized_crop_flip(sizes_B2: Tensor, image_size: int, generator: torch.Generator | None) -> Crops:
    """A crop of random area and aspect, resized, as ``RandomResizedCrop``; mirrored half of the time."""
    batch = len(sizes_B2)
    area_B1 = sizes_B2.prod(dim=1, keepdim=True)
    draws = torch.rand(2, batch, ATTEMPTS, generator=generator, dtype=torch.float64)
    areas = area_B1 * (AREA[0] + (AREA[1] - AREA[0]) * draws[0])
    low, high = torch.tensor(ASPECT, dtype=torch.float64).log()
    aspects = (low + (high - low) * draws[1]).exp()
    tries_BA2 = torch.stack([areas / aspects, areas * aspects], dim=2).sqrt().round().to(torch.int64)
    fits_BA = ((tries_BA2 > 0) & (tries_BA2 <= sizes_B2[:, None])).all(dim=2)
    first_B = fits_BA.to(torch.uint8).argmax(dim=1)
    drawn_B2 = tries_BA2[torch.arange(batch), first_B]

    # Where no attempt fits: the centre, as near to the allowed aspects as it goes.
    height, width = sizes_B2.unbind(1)
    fallback_B2 = torch.stack(
        [
            torch.minimum(height, (width / ASPECT[0]).round().to(torch.int64)),
            torch.minimum(width, (height * ASPECT[1]).round().to(torch.int64)),
        ],
        dim=1,
    )
    fits_B1 = fits_BA.any(dim=1, keepdim=True)
    crop_B2 = torch.where(fits_B1, drawn_B2, fallback_B2)
    room_B2 = sizes_B2 - crop_B2
    offset_B2 = torch.where(fits_B1, _up_to(room_B2, generator), room_B2 // 2)
    boxes = torch.cat([offset_B2, crop_B2], dim=1)
    return Crops(boxes_B4=boxes, reach_B4=boxes, flips_B=_flips(batch, generator))


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """``crops(sizes_B2, image_size, generator)`` draws boxes; ``resizes``: the short side is fixed first."""

    summary: str
    crops: Callable[[Tensor, int, torch.Generator | None], Crops]
    resizes: bool


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": Augmentation(summary="resize, centre crop", crops=none, resizes=True),
    "crop_flip": Augmentation(summary="resize, random crop, flip", crops=crop_flip, resizes=True),
    "resized_crop_flip": Augmentation(
        summary="random resized crop (Szegedy et al., 2015), flip", crops=resized_crop_flip, resizes=False
    ),
}


def short_side_needed(name: str, image_size: int, store_size: int) -> int:
    """The short side, in pixels, that a store must keep for this augmentation and for evaluation."""
    return min(store_size, _resize_side(image_size)) if AUGMENTATIONS[name].resizes else store_size


def augment(
    name: str, pixels: Tensor, sizes_B2: Tensor, image_size: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Augment a batch on the device where its pixels lie.

    Args:
        name: a row of ``AUGMENTATIONS``.
        pixels: uint8 [B, 3, H, W], images in the upper left, whatever lies beyond is never seen.
        sizes_B2: int64 heights and widths of the images, on the CPU.
        image_size: S, the side of the result in pixels.
        generator: draws the parameters; a CPU generator. ``none`` draws nothing.

    Returns:
        float32 [B, 3, S, S] in 0 … 1.
    """
    return resample(pixels, AUGMENTATIONS[name].crops(sizes_B2, image_size, generator), image_size)
