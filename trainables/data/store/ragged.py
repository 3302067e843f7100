"""Decoded images of any sizes, one after the other in one run of bytes.

Legend: N images; B images of a batch; H, W height and width, the largest ones of a batch; 2 is (height, width);
4 is (top, left, height, width).
"""

import numpy as np
import torch
from torch import Tensor


class RaggedImages:
    """Images of ``sizes_N2`` whose ``pixels`` (uint8, RGB, each column by column) are in memory or mapped from disk."""

    def __init__(self, pixels: np.ndarray, sizes_N2: Tensor) -> None:
        self.pixels = pixels
        self.sizes_N2 = sizes_N2
        lengths_N = 3 * sizes_N2.prod(dim=1)
        self.starts_N = lengths_N.cumsum(0) - lengths_N

    def __len__(self) -> int:
        return len(self.sizes_N2)

    def sizes(self, indices: Tensor) -> Tensor:
        """Height and width of some images, int64 [B, 2]."""
        return self.sizes_N2[indices]

    def gather(self, indices: Tensor, windows_B4: Tensor) -> Tensor:
        """The pixels of a window (int64, inside the image) of some images: uint8 [B, W, H, 3], zero beyond each."""
        height, width = windows_B4[:, 2:].amax(dim=0).tolist()
        batch = np.zeros((len(indices), width, height, 3), dtype=np.uint8)
        images = zip(batch, self.starts_N[indices].tolist(), self.sizes_N2[indices].tolist(), windows_B4.tolist())
        for target, start, (h, w), (top, left, tall, wide) in images:
            image = self.pixels[start : start + 3 * h * w].reshape(w, h, 3)
            target[:wide, :tall] = image[left : left + wide, top : top + tall]
        return torch.from_numpy(batch)
