"""Batches of images: loaded from a store, cropped, and prefetched."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from trainables.data.augment import AUGMENTATIONS, Frame
from trainables.data.crops import Crops, resample

# Batches made while the one before is used.
#
# On a GPU a thread makes the next batch, on a CUDA stream of its own: the copies that it waits for (crops and labels
# come
# from the CPU, and pixels where they did not fit on the GPU) let neither the step nor the thread that starts it wait.
# On
# a CPU the cores are the step's, and every batch is made when it is asked for.

Batch = TypeVar("Batch")
Made = TypeVar("Made")


def prefetched(
    batches: Iterable[Tensor], make: Callable[[Tensor], tuple[Tensor, ...]], device: torch.device
) -> Iterator[tuple[Tensor, ...]]:
    """``make(batch)`` of each batch, in their order.

    Args:
        batches: indices of images.
        make: gives tensors on ``device``; it is never called twice at once, and in the order of ``batches``, so that a
            generator which it draws from gives what it gives without a thread.
        device: where they are used, on the stream that is current there.
    """
    if device.type != "cuda":
        yield from map(make, batches)
        return
    stream = torch.cuda.Stream(device)

    def on_stream(batch: Tensor) -> tuple[tuple[Tensor, ...], torch.cuda.Event]:
        with torch.cuda.stream(stream):
            return make(batch), stream.record_event()

    stream.wait_stream(torch.cuda.current_stream(device))
    for tensors, ready in one_ahead(batches, on_stream):
        user = torch.cuda.current_stream(device)
        user.wait_event(ready)
        for tensor in tensors:
            tensor.record_stream(user)  # else its memory would be given away when it is dropped, and still be read
        yield tensors


def one_ahead(batches: Iterable[Batch], make: Callable[[Batch], Made]) -> Iterator[Made]:
    """``make(batch)`` of each batch in their order, the next one made by a thread while one is used.

    Raises:
        Exception: what ``make`` raised, when its batch is asked for.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        ahead: Future[Made] | None = None
        for batch in batches:
            following = thread.submit(make, batch)
            if ahead is not None:
                yield ahead.result()
            ahead = following
        if ahead is not None:
            yield ahead.result()


# From images in a store to a batch that a network takes: only what is seen is read, and resampled where it is used.

CHUNK = 8 * 224**2  # output pixels that a CPU resamples at once: what they are made of stays in its cache
PADDED = 1 << 29  # bytes of windows that are gathered at once, and four times as many when they are resampled


class Images(Protocol):
    """Decoded images: in memory, in memory-mapped pages, or on a GPU."""

    def __len__(self) -> int: ...

    def sizes(self, indices: Tensor, /) -> Tensor:
        """Height and width of some images, int64 [B, 2]."""

    def gather(self, indices: Tensor, windows_B4: Tensor, /) -> Tensor:
        """The pixels of a window (int64, inside the image) of some images: uint8 [B, W, H, 3]."""


def load(
    images: Images,
    indices_B: Tensor,
    augmentation: str,
    frame: Frame,
    *,
    device: torch.device,
    generator: torch.Generator | None = None,
    share: slice = slice(None),
) -> Tensor:
    """Augment a batch of images.

    Args:
        images: where they lie: in memory-mapped pages, or on ``device`` already.
        indices_B: which of them, int64.
        augmentation: a row of ``AUGMENTATIONS``.
        frame: the output's side S and the short side before cropping.
        device: where the images are resampled and returned.
        generator: draws the parameters; a CPU generator. ``none`` draws nothing.
        share: which of the batch are wanted; the parameters are drawn for all of it, and do not depend on this.

    Returns:
        float32 [B, 3, S, S] in 0 … 1, B those of ``share``.
    """
    crops = AUGMENTATIONS[augmentation](images.sizes(indices_B), frame, generator)
    if share != slice(None):
        indices_B, crops = indices_B[share], crops.of(share)
    return cut(images, indices_B, crops, device)


def cut(images: Images, indices_B: Tensor, crops: Crops, device: torch.device) -> Tensor:
    """What ``crops`` say of some images, float32 [B, 3, S, S] in 0 … 1 on ``device``."""
    side = crops.side
    if device.type != "cpu" and _padded(crops.windows_B4) <= PADDED:
        return resample(_on(device, images.gather(indices_B, crops.windows_B4)), crops)
    batch = torch.empty(len(indices_B), 3, side, side, dtype=torch.float32, device=device)
    # Images of like width together, for a chunk is as wide as its widest; what needs no resampling is apart.
    order = torch.where(crops.exact_B, 0, crops.windows_B4[:, 3]).argsort(stable=True)
    size = CHUNK // side**2 if device.type == "cpu" else len(order)
    for chunk in order.split(max(1, size)):
        for rows in _fitting(chunk, crops.windows_B4):
            of_rows = crops.of(rows)
            batch[rows] = resample(_on(device, images.gather(indices_B[rows], of_rows.windows_B4)), of_rows)
    return batch


def _on(device: torch.device, pixels: Tensor) -> Tensor:
    """The pixels on a device. To a GPU they go through pinned memory, which torch keeps for the next batches."""
    if device.type != "cuda" or pixels.is_cuda:
        return pixels.to(device)
    return pixels.pin_memory().to(device, non_blocking=True)


def _padded(windows_B4: Tensor) -> int:
    """The bytes of windows that all are as high and as wide as the largest."""
    height, width = windows_B4[:, 2:].amax(dim=0).tolist()
    return 3 * len(windows_B4) * height * width


def _fitting(rows: Tensor, windows_B4: Tensor) -> Iterator[Tensor]:
    """``rows``, halved until the windows of each part fill no memory: a flat and a thin image side by side would."""
    if len(rows) == 1 or _padded(windows_B4[rows]) <= PADDED:
        yield rows
        return
    for half in rows.tensor_split(2):
        yield from _fitting(half, windows_B4)


# Decoded images in memory, each an array of its own.
#
# Legend: B images of a batch; H, W the largest height and width of their windows; 2 is (height, width); 4 is (top,
# left,
# height, width).


class ImagesInMemory:
    """Images uint8 [H, W, 3], as a decoder gives them: none is copied before a part of it is asked for."""

    def __init__(self, images: Sequence[np.ndarray]) -> None:
        self._images = images
        self._sizes_N2 = torch.tensor([image.shape[:2] for image in images])

    def __len__(self) -> int:
        return len(self._images)

    def sizes(self, indices: Tensor) -> Tensor:
        """Height and width of some images, int64 [B, 2]."""
        return self._sizes_N2[indices]

    def gather(self, indices: Tensor, windows_B4: Tensor) -> Tensor:
        """The pixels of a window (int64, inside the image) of some images: uint8 [B, W, H, 3], zero beyond each.

        They lie row by row, as in the images.
        """
        height, width = windows_B4[:, 2:].amax(dim=0).tolist()
        batch = np.zeros((len(indices), height, width, 3), dtype=np.uint8)
        for target, index, (top, left, tall, wide) in zip(batch, indices.tolist(), windows_B4.tolist()):
            target[:tall, :wide] = self._images[index][top : top + tall, left : left + wide]
        return torch.from_numpy(batch).transpose(1, 2)
