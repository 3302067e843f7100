"""Batches of images, or of features computed from them: read from a store or from memory, cropped, and prefetched.

An augmentation is a function that draws :class:`Crops` on the CPU from the images' sizes alone. So a seed gives the
same crops on every device, and only the pixels inside the boxes are read. :func:`resample` then crops, flips and
resizes, on the device that uses them, with the triangle filter of Pillow and torchvision (bilinear, antialiased).

Each output column is a weighted sum of a few input columns, and each output row one of rows. Each of the two sums is
one ``embedding_bag`` over the batch, which adds weighted rows of a table; as dense matrices the filters would be
mostly zeros. Pixels are stored column by column, the order in which the first sum reads them.

Legend: B images of a batch; H, W the largest height and width of their windows; S output side; T taps, the input
pixels of a sum; A attempts; 2 is (height, width); 4 is (top, left, height, width).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from trainables.data import AUGMENTATIONS, Frame

Batch = TypeVar("Batch")
Made = TypeVar("Made")

CHUNK = 8 * 224**2  # output pixels that a CPU resamples at once, so that the input stays in its cache
PADDED = 1 << 29  # most bytes of windows gathered at once; resampling needs four times as many


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
        boxes_B4, reach_B4, flips_B = (part[rows] for part in (self.boxes_B4, self.reach_B4, self.flips_B))
        return replace(self, boxes_B4=boxes_B4, reach_B4=reach_B4, flips_B=flips_B)


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
    rows, factors = (part.reshape(-1, bags.shape[-1]).to(table.device) for part in (bags, weights))
    return embedding_bag(rows, table, mode="sum", per_sample_weights=factors)


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
    stored = pixels.contiguous().float().view(batch * width, height * 3)
    squeezed = _sums(stored, image_B11 * width + columns, column_weights)
    table = squeezed.t().contiguous().view(height * 3 * batch, side)  # its rows: (H, 3, B); one fast transposition
    channel_311 = torch.arange(3)[:, None, None]
    bags_B3ST = (rows[:, None] * 3 + channel_311) * batch + image_B11[:, None]
    weights_B3ST = (row_weights / 255)[:, None].expand_as(bags_B3ST)
    return _sums(table, bags_B3ST, weights_B3ST).view(batch, 3, side, side)


AREA, ASPECT, ATTEMPTS = (0.08, 1.0), (3 / 4, 4 / 3), 10  # of RandomResizedCrop


def _crop_of_resized(
    sizes_B2: Tensor, frame: Frame, offset: Callable[[Tensor], Tensor], flips_B: Tensor | None = None
) -> Crops:
    """Return crops at ``offset(room)`` of the resized images, in stored pixels; by default none is mirrored."""
    sides_B2 = sizes_B2 if frame.square else sizes_B2.amin(dim=1, keepdim=True)
    # the long side is rounded down, as by torchvision
    resized_B2 = (frame.short_side * sizes_B2).div(sides_B2, rounding_mode="floor")
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


class Images(Protocol):
    """Decoded images: in memory, memory-mapped, or on a GPU."""

    def __len__(self) -> int: ...

    def sizes(self, indices: Tensor, /) -> Tensor:
        """Return height and width of some images, int64 [B, 2]."""

    def gather(self, indices: Tensor, windows_B4: Tensor, /) -> Tensor:
        """Return the pixels of one window (int64, inside the image) of each image: uint8 [B, W, H, 3]."""


class Features(ABC):
    """Features of images or other items."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def features(self, indices_B: Tensor) -> Tensor:
        """Return float32 [B, F]: features of the given items."""


class FeaturesInMemory(Features):
    """Features float32 [N, F]."""

    def __init__(self, features_NF: Tensor) -> None:
        self._features_NF = features_NF

    def __len__(self) -> int:
        return len(self._features_NF)

    def features(self, indices_B: Tensor) -> Tensor:
        return self._features_NF[indices_B]


def load(
    images: Images | Features,
    indices_B: Tensor,
    augmentation: str,
    frame: Frame,
    *,
    device: torch.device,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Load images, float32 [B, 3, S, S] in 0 … 1 on ``device``, or features [B, F], by their indices.

    ``augmentation`` is a row of ``AUGMENTATIONS``, which draws crops from ``generator``, one of the CPU. ``frame`` is
    the output's side S and the size before cropping.
    """
    if isinstance(images, Features):
        return to_device(device, images.features(indices_B))
    return cut(images, indices_B, AUGMENTATIONS[augmentation](images.sizes(indices_B), frame, generator), device)


def cut(images: Images, indices_B: Tensor, crops: Crops, device: torch.device) -> Tensor:
    """Return ``crops`` of some images, float32 [B, 3, S, S] in 0 … 1 on ``device``."""
    if device.type != "cpu" and _padded(crops.windows_B4) <= PADDED:
        return resample(to_device(device, images.gather(indices_B, crops.windows_B4)), crops)
    batch = torch.empty(len(indices_B), 3, crops.side, crops.side, dtype=torch.float32, device=device)
    # Group images of similar width, since a chunk is padded to its widest; exact crops need no resampling.
    order = torch.where(crops.exact_B, 0, crops.windows_B4[:, 3]).argsort(stable=True)
    size = CHUNK // crops.side**2 if device.type == "cpu" else len(order)
    for chunk in order.split(max(1, size)):
        for rows in _fitting(chunk, crops.windows_B4):
            of_rows = crops.of(rows)
            batch[rows] = resample(to_device(device, images.gather(indices_B[rows], of_rows.windows_B4)), of_rows)
    return batch


def to_device(device: torch.device, pixels: Tensor) -> Tensor:
    """Copy pixels to a device; to a GPU through pinned memory, which torch reuses for the next batches."""
    if device.type != "cuda" or pixels.is_cuda:
        return pixels.to(device)
    return pixels.pin_memory().to(device, non_blocking=True)


def _padded(windows_B4: Tensor) -> int:
    """Return the size in bytes of the windows, all padded to the largest height and width."""
    height, width = windows_B4[:, 2:].amax(dim=0).tolist()
    return 3 * len(windows_B4) * height * width


def _fitting(rows: Tensor, windows_B4: Tensor) -> Iterator[Tensor]:
    """Split ``rows`` until the padded windows of each part fit in memory: mixing flat and thin images needs a lot."""
    if len(rows) == 1 or _padded(windows_B4[rows]) <= PADDED:
        yield rows
        return
    for half in rows.tensor_split(2):
        yield from _fitting(half, windows_B4)


class ImagesInMemory:
    """Decoded images, each a separate uint8 array [H, W, 3]; only requested windows are copied."""

    def __init__(self, images: Sequence[np.ndarray]) -> None:
        self._images = images
        self._sizes_N2 = torch.tensor([image.shape[:2] for image in images])

    def __len__(self) -> int:
        return len(self._images)

    def sizes(self, indices: Tensor) -> Tensor:
        return self._sizes_N2[indices]

    def gather(self, indices: Tensor, windows_B4: Tensor) -> Tensor:
        """Return windows, zero-padded; the memory layout is row by row, as in the images."""
        height, width = windows_B4[:, 2:].amax(dim=0).tolist()
        batch = np.zeros((len(indices), height, width, 3), dtype=np.uint8)
        for target, index, (top, left, tall, wide) in zip(batch, indices.tolist(), windows_B4.tolist()):
            target[:tall, :wide] = self._images[index][top : top + tall, left : left + wide]
        return torch.from_numpy(batch).transpose(1, 2)


def prefetched(
    batches: Iterable[Tensor], make: Callable[[Tensor], tuple[Tensor, ...]], device: torch.device
) -> Iterator[tuple[Tensor, ...]]:
    """Yield ``make(batch)``, tensors on ``device``, for each batch in order; on a GPU the next is made meanwhile.

    On a GPU a thread makes the next batch on a separate CUDA stream, so that neither the training step nor the thread
    that launches it waits for copies. On a CPU the training step uses the cores, and every batch is made on demand.
    Calls of ``make`` never overlap and follow the order of ``batches``, so a random generator inside it gives the same
    numbers as without a thread. The tensors are for the current stream of ``device``.
    """
    if device.type != "cuda":
        yield from map(make, batches)
        return
    stream = stream_of("batches", device)

    def on_stream(batch: Tensor) -> tuple[tuple[Tensor, ...], torch.cuda.Event]:
        # A thread begins with device 0, where pinning memory would create a context of half a gigabyte.
        with torch.cuda.device(device), torch.cuda.stream(stream):
            return make(batch), stream.record_event()

    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        with closing(one_ahead(batches, on_stream)) as made:
            for tensors, ready in made:
                user = torch.cuda.current_stream(device)
                user.wait_event(ready)
                for tensor in tensors:
                    tensor.record_stream(user)  # or its memory could be reused while still being read
                yield tensors
    finally:  # a batch that is not used may still read images, whose memory may be freed next
        torch.cuda.current_stream(device).wait_stream(stream)


@cache
def stream_of(what: str, device: torch.device) -> torch.cuda.Stream:
    """Return the stream for all ``what`` of this process: PyTorch keeps freed memory for each stream separately."""
    return torch.cuda.Stream(device)


def one_ahead(batches: Iterable[Batch], make: Callable[[Batch], Made]) -> Generator[Made, None, None]:
    """Yield ``make(batch)``, or raise its error, for each batch in order; a thread makes the next while one is used."""
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        ahead: Future[Made] | None = None
        for batch in batches:
            following = thread.submit(make, batch)
            if ahead is not None:
                yield ahead.result()
            ahead = following
        if ahead is not None:
            yield ahead.result()
