"""Which part of each image is seen, and whether mirrored: one function an augmentation.

Parameters are drawn on the CPU from the images' sizes alone, so that a seed means the same crops on every device and
only the pixels that are seen are read.

Legend: B images; A attempts; 2 is (height, width); 4 is (top, left, height, width).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainables.data.augmentation.augment import Frame
from trainables.data.augmentation.resample import Crops

AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
ATTEMPTS = 10

Draws = torch.Generator | Sequence[torch.Generator] | None
"""What numbers are drawn from: one generator, or several, each for as many images of the batch as the others."""


def _whole(sizes_B2: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(sizes_B2), sizes_B2], dim=1)


def _resized(sizes_B2: Tensor, frame: Frame) -> Tensor:
    """Sizes after the frame's resize; a long side that keeps the aspect is cut to an integer, as torchvision does."""
    if frame.square:
        return torch.full_like(sizes_B2, frame.short_side)
    return (frame.short_side * sizes_B2).div(sizes_B2.amin(dim=1, keepdim=True), rounding_mode="floor")


def _crop_of_resized(sizes_B2: Tensor, frame: Frame, offset: Callable[[Tensor], Tensor], flips_B: Tensor) -> Crops:
    """Crops at ``offset(room)`` of the resized images, in stored pixels."""
    resized_B2 = _resized(sizes_B2, frame)
    scale_B2 = sizes_B2 / resized_B2
    offset_B2 = offset(resized_B2 - frame.side)
    boxes_B4 = torch.cat([offset_B2 * scale_B2, frame.side * scale_B2], dim=1)
    return Crops(boxes_B4=boxes_B4, reach_B4=_whole(sizes_B2), flips_B=flips_B, side=frame.side)


def _drawn(draws: Draws, *shape: int, of_images: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers drawn evenly from [0, 1); the dimension ``of_images`` is that of the batch."""
    if draws is None or isinstance(draws, torch.Generator):
        return torch.rand(shape, generator=draws, dtype=dtype)
    part = (*shape[:of_images], shape[of_images] // len(draws), *shape[of_images + 1 :])
    return torch.cat([torch.rand(part, generator=generator, dtype=dtype) for generator in draws], dim=of_images)


def _flips(batch: int, generator: Draws) -> Tensor:
    return _drawn(generator, batch, dtype=torch.float32) < 0.5


def _up_to(limit: Tensor, generator: Draws) -> Tensor:
    """Whole numbers drawn evenly from 0 … limit."""
    draws = _drawn(generator, *limit.shape)
    return torch.minimum((draws * (limit + 1)).floor().to(torch.int64), limit)


def none(sizes_B2: Tensor, frame: Frame, generator: Draws) -> Crops:
    """Resize and centre crop, as evaluation does."""
    unflipped = torch.zeros(len(sizes_B2), dtype=torch.bool)
    return _crop_of_resized(sizes_B2, frame, lambda room: (room / 2).round(), unflipped)


def crop(sizes_B2: Tensor, frame: Frame, generator: Draws) -> Crops:
    """The same resize, a crop anywhere."""
    unflipped = torch.zeros(len(sizes_B2), dtype=torch.bool)
    return _crop_of_resized(sizes_B2, frame, lambda room: _up_to(room, generator), unflipped)


def crop_flip(sizes_B2: Tensor, frame: Frame, generator: Draws) -> Crops:
    """The same resize, a crop anywhere, mirrored half of the time."""
    flips_B = _flips(len(sizes_B2), generator)
    return _crop_of_resized(sizes_B2, frame, lambda room: _up_to(room, generator), flips_B)


def resized_crop_flip(sizes_B2: Tensor, frame: Frame, generator: Draws) -> Crops:
    """A crop of random area and aspect, resized, as ``RandomResizedCrop``; mirrored half of the time."""
    batch = len(sizes_B2)
    area_B1 = sizes_B2.prod(dim=1, keepdim=True)
    draws = _drawn(generator, 2, batch, ATTEMPTS, of_images=1)
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
    return Crops(boxes_B4=boxes, reach_B4=boxes, flips_B=_flips(batch, generator), side=frame.side)
