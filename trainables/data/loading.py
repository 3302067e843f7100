"""Batches of images, or of features computed from them: read from a store or from memory, cropped, and prefetched.

Only the pixels inside the crops are read; they are resampled on the device that uses them.

Legend: B images of a batch; H, W the largest height and width of their windows; S output side; 2 is (height, width);
4 is (top, left, height, width).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cache
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from trainables.data import AUGMENTATIONS, Frame
from trainables.data.crops import Crops, resample

Batch = TypeVar("Batch")
Made = TypeVar("Made")

CHUNK = 8 * 224**2  # output pixels that a CPU resamples at once, so that the input stays in its cache
PADDED = 1 << 29  # most bytes of windows gathered at once; resampling needs four times as many


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
    """Load and augment a batch of images, or load their features.

    Args:
        images: the source.
        indices_B: indices of the images, int64.
        augmentation: a row of ``AUGMENTATIONS``; unused by features.
        frame: the output's side S and the size before cropping.
        device: the device on which the images are resampled and returned.
        generator: a CPU generator for the crop parameters; unused by ``none``.

    Returns:
        float32 [B, 3, S, S] in 0 … 1; [B, F] for features.
    """
    if isinstance(images, Features):
        return to_device(device, images.features(indices_B))
    return cut(images, indices_B, AUGMENTATIONS[augmentation](images.sizes(indices_B), frame, generator), device)


def cut(images: Images, indices_B: Tensor, crops: Crops, device: torch.device) -> Tensor:
    """Return ``crops`` of some images, float32 [B, 3, S, S] in 0 … 1 on ``device``."""
    side = crops.side
    if device.type != "cpu" and _padded(crops.windows_B4) <= PADDED:
        return resample(to_device(device, images.gather(indices_B, crops.windows_B4)), crops)
    batch = torch.empty(len(indices_B), 3, side, side, dtype=torch.float32, device=device)
    # Group images of similar width, since a chunk is padded to its widest; exact crops need no resampling.
    order = torch.where(crops.exact_B, 0, crops.windows_B4[:, 3]).argsort(stable=True)
    size = CHUNK // side**2 if device.type == "cpu" else len(order)
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
    """Yield ``make(batch)`` for each batch in order; on a GPU the next one is prepared while one is used.

    On a GPU a thread makes the next batch on a separate CUDA stream, so that neither the training step nor the thread
    that launches it waits for copies: crops and labels come from the CPU, and so do pixels that did not fit on the
    GPU. On a CPU the training step uses the cores, and every batch is made on demand.

    Args:
        batches: indices of images.
        make: returns tensors on ``device``. Calls never overlap and follow the order of ``batches``, so a random
            generator inside it gives the same numbers as without a thread.
        device: the device on whose current stream the tensors are used.
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
    """Yield ``make(batch)`` for each batch in order; a thread makes the next one while one is used.

    Raises:
        Exception: an error raised by ``make``, when its batch is requested.
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
