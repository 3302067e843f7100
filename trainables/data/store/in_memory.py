"""Decoded images in memory, each an array of its own.

Legend: B images of a batch; H, W the largest height and width of their windows; 2 is (height, width); 4 is (top, left,
height, width).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


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
