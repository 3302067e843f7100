"""From images in a store to a batch that a network takes: only what is seen is read, and resampled where it is used."""

from typing import Protocol

import torch
from torch import Tensor

from trainables.data.augmentation.augment import AUGMENTATIONS, Frame
from trainables.data.augmentation.resample import resample

CHUNK = 8 * 224**2  # output pixels that a CPU resamples at once: what they are made of stays in its cache


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
) -> Tensor:
    """Augment a batch of images.

    Args:
        images: where they lie: in memory-mapped pages, or on ``device`` already.
        indices_B: which of them, int64.
        augmentation: a row of ``AUGMENTATIONS``.
        frame: the output's side S and the short side before cropping.
        device: where the images are resampled and returned.
        generator: draws the parameters; a CPU generator. ``none`` draws nothing.

    Returns:
        float32 [B, 3, S, S] in 0 … 1.
    """
    crops = AUGMENTATIONS[augmentation](images.sizes(indices_B), frame, generator)
    if device.type != "cpu":
        return resample(images.gather(indices_B, crops.windows_B4).to(device), crops)
    batch = torch.empty(len(indices_B), 3, frame.side, frame.side)
    # Images of like width together, for a chunk is as wide as its widest; what needs no resampling is apart.
    order = torch.where(crops.exact_B, 0, crops.windows_B4[:, 3]).argsort(stable=True)
    for rows in order.split(max(1, CHUNK // frame.side**2)):
        of_rows = crops.of(rows)
        batch[rows] = resample(images.gather(indices_B[rows], of_rows.windows_B4), of_rows)
    return batch
