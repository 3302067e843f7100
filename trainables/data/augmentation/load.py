"""From images in a store to a batch that a network takes: only what is seen is read, and resampled where it is used."""

import torch
from torch import Tensor

from trainables.data.augmentation.augment import AUGMENTATIONS, Frame
from trainables.data.augmentation.resample import resample
from trainables.data.store.view import StoreView

CHUNK = 8 * 224**2  # output pixels that a CPU resamples at once: what they are made of stays in its cache


def load(
    view: StoreView,
    indices_B: Tensor,
    augmentation: str,
    frame: Frame,
    *,
    device: torch.device,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Augment a batch of images.

    Args:
        view: where the images lie: in memory-mapped pages, or on ``device`` already.
        indices_B: which images of the view, int64.
        augmentation: a row of ``AUGMENTATIONS``.
        frame: the output's side S and the short side before cropping.
        device: where the images are resampled and returned.
        generator: draws the parameters; a CPU generator. ``none`` draws nothing.

    Returns:
        float32 [B, 3, S, S] in 0 … 1.
    """
    crops = AUGMENTATIONS[augmentation](view.sizes(indices_B), frame, generator)
    if device.type != "cpu":
        return resample(view.gather(indices_B, crops.windows_B4).to(device), crops)
    images = torch.empty(len(indices_B), 3, frame.side, frame.side)
    # Images of like width together, for a chunk is as wide as its widest; what needs no resampling is apart.
    order = torch.where(crops.exact_B, 0, crops.windows_B4[:, 3]).argsort(stable=True)
    for rows in order.split(max(1, CHUNK // frame.side**2)):
        of_rows = crops.of(rows)
        images[rows] = resample(view.gather(indices_B[rows], of_rows.windows_B4), of_rows)
    return images
