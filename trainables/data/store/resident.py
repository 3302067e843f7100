"""A store whose pixels lie on a GPU, so that a step waits for no copy."""

import logging
from pathlib import Path

import torch
from torch import Tensor

from trainables.data.store.files import PIXELS
from trainables.data.store.view import Store

logger = logging.getLogger(__name__)

SHARE = 0.25  # of the device's free memory that images may take: the network and its activations need the rest


class ResidentStore(Store):
    """The store at ``path`` with its pixels copied to ``device``, where :meth:`gather` returns them."""

    def __init__(self, path: Path, device: torch.device) -> None:
        super().__init__(path)
        size = len(self._pixels)
        mapped = torch.from_file(str(path / PIXELS), shared=False, size=size, dtype=torch.uint8)
        self._flat_P3 = mapped.to(device).view(-1, 3)

    def gather(self, rows_B: Tensor, windows_B4: Tensor) -> Tensor:
        """As :meth:`Store.gather`, but pixels beyond a window are whatever lies there."""
        device = self._flat_P3.device
        heights_B = self.sizes_N2[rows_B, 0]
        top_B, left_B, _, _ = windows_B4.unbind(1)
        first_B = self._starts_N[rows_B] // 3 + left_B * heights_B + top_B
        height, width = windows_B4[:, 2:].amax(dim=0).tolist()
        columns_BW = first_B[:, None] + heights_B[:, None] * torch.arange(width)
        pixels_BWH = columns_BW.to(device)[:, :, None] + torch.arange(height, device=device)
        return self._flat_P3[pixels_BWH.clamp_(max=len(self._flat_P3) - 1)]


_held: dict[Path, ResidentStore] = {}


def on_device(store: Store, device: torch.device) -> Store:
    """The store with its pixels on a GPU where they fit; all trials of this process share the copy."""
    if device.type != "cuda":
        return store
    if store.path not in _held:
        _held.clear()
        size = 3 * int(store.sizes_N2.prod(dim=1).sum())
        free, _ = torch.cuda.mem_get_info(device)
        if size > SHARE * free:
            logger.info("The images (%.1f GB) stay in main memory: the GPU has %.1f GB free.", size / 1e9, free / 1e9)
            return store
        _held[store.path] = ResidentStore(store.path, device)
        logger.info("The images (%.1f GB) are on the GPU.", size / 1e9)
    return _held[store.path]
