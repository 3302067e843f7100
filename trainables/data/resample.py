"""Crop, flip and resize a whole batch at once, each image with its own box.

Each output column is a weighted sum of a few input columns, and each output row one of rows. The weights are the
triangle filter with which Pillow and torchvision resize (bilinear, antialiased). Both sums are one
``embedding_bag`` over the whole batch, which adds weighted rows of a table: the filters as dense matrices would be
multiplied mostly by zero.

Legend: B images; H, W padded height and width; S output side; T taps, the input places of a sum;
4 is (top, left, height, width).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


@dataclass(frozen=True, kw_only=True)
class Crops:
    """What to take from each image of a batch, in its own pixels, on the CPU.

    ``boxes_B4`` (whole or fractions) become the outputs; ``reach_B4`` are the parts of the images that the filter
    may read: the box itself where an image is cropped and then resized, the whole image where it is resized and
    then cropped. ``flips_B`` (bool) mirror left and right.
    """

    boxes_B4: Tensor
    reach_B4: Tensor
    flips_B: Tensor


def _taps(boxes_B4: Tensor, reach_B4: Tensor, axis: int, side: int) -> tuple[Tensor, Tensor]:
    """Input places of each output place along an axis, int64 [B, S, T], and their weights, which sum to one.

    Output place s of a box is centred at start + scale × (s + ½), where scale = length / S. The filter falls
    linearly to zero at ``support`` = max(scale, 1) pixels from there and is cut to the reach.
    """
    start_B11, length_B11 = (boxes_B4[:, part, None, None].double() for part in (axis, axis + 2))
    low_B11, extent_B11 = (reach_B4[:, part, None, None] for part in (axis, axis + 2))
    scale_B11 = length_B11 / side
    support_B11 = scale_B11.clamp(min=1)
    centres_BS1 = start_B11 + scale_B11 * (torch.arange(side)[:, None] + 0.5)
    first_BS1 = (centres_BS1 - support_B11 - 0.5).floor() + 1
    places_BST = first_BS1 + torch.arange(math.ceil(2 * support_B11.max()))
    within_BST = (places_BST >= low_B11) & (places_BST < low_B11 + extent_B11)
    weights_BST = (1 - (places_BST + 0.5 - centres_BS1).abs() / support_B11).clamp(min=0) * within_BST
    places_BST = torch.where(within_BST, places_BST, low_B11)  # weighted zero, but it must be somewhere
    return places_BST.long(), (weights_BST / weights_BST.sum(dim=2, keepdim=True)).float()


def _sum(maps_BL: Tensor, places_BST: Tensor, weights_BST: Tensor) -> Tensor:
    """Weighted sums along the second axis: [B, L, …, 3] → [B, S, …, 3]."""
    batch, length = maps_BL.shape[:2]
    firsts_B11 = length * torch.arange(batch)[:, None, None]
    bags = (firsts_B11 + places_BST).flatten(0, 1).to(maps_BL.device)
    weights = weights_BST.flatten(0, 1).to(maps_BL.device)
    sums = embedding_bag(bags, maps_BL.reshape(batch * length, -1), mode="sum", per_sample_weights=weights)
    return sums.view(batch, -1, *maps_BL.shape[2:])


@torch.no_grad()
def resample(pixels: Tensor, crops: Crops, side: int) -> Tensor:
    """Float images [B, 3, S, S] in 0 … 1 from uint8 ``pixels`` [B, 3, H, W], on the device of the pixels."""
    rows = _taps(crops.boxes_B4, crops.reach_B4, 0, side)
    columns, weights = _taps(crops.boxes_B4, crops.reach_B4, 1, side)
    flips_B11 = crops.flips_B[:, None, None]
    columns, weights = (torch.where(flips_B11, part.flip(1), part) for part in (columns, weights))
    images_BWH3 = pixels.permute(0, 3, 2, 1).to(torch.float32, memory_format=torch.contiguous_format)
    images_BHS3 = _sum(images_BWH3, columns, weights).transpose(1, 2).contiguous()
    return _sum(images_BHS3, *rows).permute(0, 3, 1, 2).div_(255)
