"""Crop boxes, and resampling of a whole batch at once, each image with its own box.

An augmentation is a function that draws :class:`Crops` on the CPU from the images' sizes alone. So a seed gives the
same crops on every device, and only the pixels inside the boxes are read. :func:`resample` then crops, flips and
resizes with the triangle filter of Pillow and torchvision (bilinear, antialiased).

Each output column is a weighted sum of a few input columns, and each output row one of rows. Each of the two sums is
one ``embedding_bag`` over the batch, which adds weighted rows of a table; as dense matrices the filters would be
mostly zeros. Pixels are stored column by column, the order in which the first sum reads them.

Legend: B images; H, W height and width of the largest window; S output side; T taps, the input pixels of a sum;
A attempts; 2 is (height, width); 4 is (top, left, height, width).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from trainables.data import Frame


@dataclass(frozen=True, kw_only=True)
class Crops:
    """One crop of each image of a batch, in pixels of the image, on the CPU.

    The boxes ``boxes_B4`` (integers or fractions) become outputs of ``side`` S. The filter may read ``reach_B4``: the
    box if the image is cropped and then resized, the whole image if it is resized and then cropped. ``flips_B`` (bool)
    selects the images to mirror horizontally.
    """

    boxes_B4: Tensor
    reach_B4: Tensor
    flips_B: Tensor
    side: int

    @cached_property
    def windows_B4(self) -> Tensor:
        """Windows of whole pixels that the filter reads, int64 [B, 4]."""
        low, high = [], []
        for axis in (0, 1):
            start_B, scale_B, support_B = _filter(self.boxes_B4, axis, self.side)
            reach_B = self.reach_B4[:, axis].double()
            first_B = (start_B + scale_B * 0.5 - support_B - 0.5).floor() + 1
            last_B = (start_B + scale_B * (self.side - 0.5) + support_B - 0.5).ceil() - 1
            low.append(torch.maximum(first_B, reach_B))
            high.append(torch.minimum(last_B + 1, reach_B + self.reach_B4[:, axis + 2]))
        return torch.stack([*low, high[0] - low[0], high[1] - low[1]], dim=1).long()

    @cached_property
    def exact_B(self) -> Tensor:
        """Mask of outputs that are unchanged pixels of the image, bool [B]."""
        return (self.windows_B4 == self.boxes_B4).all(dim=1) & (self.boxes_B4[:, 2:] == self.side).all(dim=1)

    def of(self, rows: Tensor) -> "Crops":
        """Return the crops of some images of the batch."""
        return Crops(
            boxes_B4=self.boxes_B4[rows], reach_B4=self.reach_B4[rows], flips_B=self.flips_B[rows], side=self.side
        )


def _filter(boxes_B4: Tensor, axis: int, side: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return start, scale and support of each box's filter, float64 [B].

    Output pixel s is centred at start + scale × (s + ½), where scale = length / S. The filter falls linearly to zero
    at ``support`` = max(scale, 1) pixels from the centre and is cut to the reach.
    """
    scale_B = boxes_B4[:, axis + 2].double() / side
    return boxes_B4[:, axis].double(), scale_B, scale_B.clamp(min=1)


def _taps(crops: Crops, axis: int) -> tuple[Tensor, Tensor]:
    """Return each output pixel's input pixels along an axis, int64 [B, S, T], and their weights, which sum to one."""
    start_B11, scale_B11, support_B11 = (part[:, None, None] for part in _filter(crops.boxes_B4, axis, crops.side))
    low_B11, extent_B11 = (crops.windows_B4[:, part, None, None] for part in (axis, axis + 2))
    centres_BS1 = start_B11 - low_B11 + scale_B11 * (torch.arange(crops.side)[:, None] + 0.5)
    first_BS1 = (centres_BS1 - support_B11 - 0.5).floor() + 1
    pixels_BST = first_BS1 + torch.arange(math.ceil(2 * support_B11.max()))
    within_BST = (pixels_BST >= 0) & (pixels_BST < extent_B11)
    weights_BST = (1 - (pixels_BST + 0.5 - centres_BS1).abs() / support_B11).clamp(min=0) * within_BST
    pixels_BST = torch.where(within_BST, pixels_BST, 0)  # any valid index: its weight is zero
    return pixels_BST.long(), (weights_BST / weights_BST.sum(dim=2, keepdim=True)).float()


def _sums(table: Tensor, bags: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums of rows of ``table`` [R, D]: bags [..., T] → [bags, D]."""
    taps = bags.shape[-1]
    return embedding_bag(
        bags.reshape(-1, taps).to(table.device),
        table,
        mode="sum",
        per_sample_weights=weights.reshape(-1, taps).to(table.device),
    )


@torch.no_grad()
def resample(pixels: Tensor, crops: Crops) -> Tensor:
    """Return float images [B, 3, S, S] in 0 … 1 from the windows' uint8 pixels [B, W, H, 3], on their device."""
    if crops.exact_B.all():
        flips_B111 = crops.flips_B[:, None, None, None].to(pixels.device)
        pixels = torch.where(flips_B111, pixels.flip(1), pixels) if crops.flips_B.any() else pixels
        return pixels.permute(0, 3, 2, 1).contiguous().float().div_(255)  # permuted as bytes, a quarter of the size
    batch, width, height, _ = pixels.shape
    side = crops.side
    rows, row_weights = _taps(crops, 0)
    columns, column_weights = _taps(crops, 1)
    flips_B11 = crops.flips_B[:, None, None]
    columns, column_weights = (torch.where(flips_B11, part.flip(1), part) for part in (columns, column_weights))
    image_B11 = torch.arange(batch)[:, None, None]
    squeezed = _sums(
        pixels.contiguous().float().view(batch * width, height * 3), image_B11 * width + columns, column_weights
    )
    table = squeezed.t().contiguous().view(height * 3 * batch, side)  # its rows: (H, 3, B); one fast transposition
    channel_311 = torch.arange(3)[:, None, None]
    bags_B3ST = (rows[:, None] * 3 + channel_311) * batch + image_B11[:, None]
    weights_B3ST = (row_weights / 255)[:, None].expand_as(bags_B3ST)
    return _sums(table, bags_B3ST, weights_B3ST).view(batch, 3, side, side)


# Augmentations

AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
ATTEMPTS = 10


def _resized(sizes_B2: Tensor, frame: Frame) -> Tensor:
    """Return sizes after the frame's resize; the long side is rounded down, as by torchvision."""
    if frame.square:
        return torch.full_like(sizes_B2, frame.short_side)
    return (frame.short_side * sizes_B2).div(sizes_B2.amin(dim=1, keepdim=True), rounding_mode="floor")


def _crop_of_resized(
    sizes_B2: Tensor, frame: Frame, offset: Callable[[Tensor], Tensor], flips_B: Tensor | None = None
) -> Crops:
    """Return crops at ``offset(room)`` of the resized images, in stored pixels; by default none is mirrored."""
    resized_B2 = _resized(sizes_B2, frame)
    scale_B2 = sizes_B2 / resized_B2
    offset_B2 = offset(resized_B2 - frame.side)
    boxes_B4 = torch.cat([offset_B2 * scale_B2, frame.side * scale_B2], dim=1)
    reach_B4 = torch.cat([torch.zeros_like(sizes_B2), sizes_B2], dim=1)
    flips_B = torch.zeros(len(sizes_B2), dtype=torch.bool) if flips_B is None else flips_B
    return Crops(boxes_B4=boxes_B4, reach_B4=reach_B4, flips_B=flips_B, side=frame.side)


def _flips(batch: int, generator: torch.Generator | None) -> Tensor:
    return torch.rand(batch, generator=generator, dtype=torch.float32) < 0.5


def _up_to(limit: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw uniform integers from 0 … limit."""
    draws = torch.rand(limit.shape, generator=generator, dtype=torch.float64)
    return torch.minimum((draws * (limit + 1)).floor().to(torch.int64), limit)


def none(sizes_B2: Tensor, frame: Frame, generator: torch.Generator | None) -> Crops:
    """Resize and crop the centre, as in evaluation."""
    return _crop_of_resized(sizes_B2, frame, lambda room: (room / 2).round())


def crop(sizes_B2: Tensor, frame: Frame, generator: torch.Generator | None) -> Crops:
    """Resize as :func:`none`, then crop at a random position."""
    return _crop_of_resized(sizes_B2, frame, lambda room: _up_to(room, generator))


def crop_flip(sizes_B2: Tensor, frame: Frame, generator: torch.Generator | None) -> Crops:
    """Resize and crop as :func:`crop`, and mirror with probability ½."""
    flips_B = _flips(len(sizes_B2), generator)
    return _crop_of_resized(sizes_B2, frame, lambda room: _up_to(room, generator), flips_B)


def resized_crop_flip(sizes_B2: Tensor, frame: Frame, generator: torch.Generator | None) -> Crops:
    """Crop a random area and aspect ratio and resize, as ``RandomResizedCrop`` does; mirror with probability ½."""
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

    # If no attempt fits: the centre, with the nearest possible aspect ratio.
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
