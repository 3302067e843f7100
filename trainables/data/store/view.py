"""The image store as trials read it: memory-mapped pixels, or pixels on the GPU, and labels."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.data.dataset import Dataset, listed
from trainables.data.store.contents import read_contents
from trainables.data.store.room import InUse
from trainables.data.store.spec import PIXELS
from trainables.metrics.table import superclass_metrics
from trainables.mistakes import Mistakes

# The image store as trials read it: decoded pixels in one memory-mapped file, shared by a whole node.
#
# Legend: N images; B images of a batch; H, W the largest height and width of their windows; 2 is (height, width);
# 4 is (top, left, height, width).


class Store:
    """An image store, opened from its path alone; pixels are read from disk when they are asked for.

    Nobody removes it as long as this object lives.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._in_use = InUse(path)
        contents = read_contents(path)
        self.labels_N = torch.from_numpy(contents.labels_N)
        self.sizes_N2 = torch.from_numpy(contents.sizes_N2)
        self._pixels = contents.pixels
        self.class_names = contents.class_names
        self.image_keys = contents.image_keys
        self._starts_N = torch.from_numpy(np.cumsum(contents.lengths_N) - contents.lengths_N)

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        """Open the store at ``path``.

        Raises:
            Mistakes: there is no store, or it is damaged.
        """
        return cls(Path(path))

    def __reduce__(self) -> tuple[Any, ...]:
        return Store.open, (str(self.path),)  # pickled as a path: another process maps the same pages

    def __len__(self) -> int:
        return len(self.image_keys)

    def subset(self, class_names: Sequence[str]) -> "StoreView":
        """The images of some classes, relabelled 0 … C−1 in the given order."""
        label_of = {name: label for label, name in enumerate(class_names)}
        assert len(label_of) == len(class_names), "class names that repeat"
        if missing := sorted(set(class_names) - set(self.class_names)):
            raise Mistakes(f"The image store at {str(self.path)!r} has no class {listed(missing)}.")
        relabelled_C = torch.tensor([label_of.get(name, -1) for name in self.class_names])
        labels_N = relabelled_C[self.labels_N]
        rows = torch.nonzero(labels_N >= 0).squeeze(1)
        return StoreView(store=self, class_names=tuple(class_names), rows_N=rows, labels_N=labels_N[rows])

    def gather(self, rows_B: Tensor, windows_B4: Tensor) -> Tensor:
        """The pixels of a window (int64, inside the image) of some images: uint8 [B, W, H, 3], zero beyond each."""
        height, width = windows_B4[:, 2:].amax(dim=0).tolist()
        batch = np.zeros((len(rows_B), width, height, 3), dtype=np.uint8)
        images = zip(batch, self._starts_N[rows_B].tolist(), self.sizes_N2[rows_B].tolist(), windows_B4.tolist())
        for target, start, (h, w), (top, left, tall, wide) in images:
            image = self._pixels[start : start + 3 * h * w].reshape(w, h, 3)
            target[:wide, :tall] = image[left : left + wide, top : top + tall]
        return torch.from_numpy(batch)


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreView:
    """Some classes of a store, with their own labels 0 … C−1."""

    store: Store
    class_names: tuple[str, ...]
    rows_N: Tensor
    labels_N: Tensor

    def __len__(self) -> int:
        return len(self.rows_N)

    def sizes(self, indices: Tensor) -> Tensor:
        """Height and width of some images, int64 [B, 2]."""
        return self.store.sizes_N2[self.rows_N[indices]]

    @property
    def image_keys(self) -> tuple[str, ...]:
        """The data set's keys of the images."""
        return tuple(self.store.image_keys[row] for row in self.rows_N.tolist())

    def gather(self, indices: Tensor, windows_B4: Tensor) -> Tensor:
        """As :meth:`Store.gather`, with the indices of this view."""
        return self.store.gather(self.rows_N[indices], windows_B4)


# A store whose pixels lie on a GPU, so that a step waits for no copy.

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


# The superclass of each image: what a data set groups its classes into.
#
# Shapes: N images of a view, C its classes.


def superclasses_for(metrics: Sequence[str], dataset: Dataset, view: StoreView) -> torch.Tensor | None:
    """The superclass of each image of ``view``, int64 [N], numbered by their names; None where no metric needs it."""
    if not superclass_metrics(metrics):
        return None
    superclass_of = dataset.superclasses()
    assert superclass_of is not None, "the plan refuses these metrics on a data set without superclasses"
    of_classes = [superclass_of[name] for name in view.class_names]
    number_of = {name: number for number, name in enumerate(sorted(set(of_classes)))}
    return torch.tensor([number_of[name] for name in of_classes])[view.labels_N]


# Half of the training images, which stand in the gallery that validation classes are ranked in.
#
# A validation has few classes, so a value says as much about which classes they are as about the configuration.
# Images of
# all training classes as further wrong neighbours make it more like the test's (``make bench-gallery``).
#
# Shapes: N images of the half.


def training_half(view: StoreView, seed: int) -> StoreView:
    """Of every class of ``view`` the half of its images, rounded up, whose ``seed:key`` has the lowest SHA-256.

    So it depends on nothing but the images that there are, and a training of fewer classes has a part of the same half.
    """
    keys_of: dict[int, list[str]] = {}
    for key, label in zip(view.image_keys, view.labels_N.tolist(), strict=True):
        keys_of.setdefault(label, []).append(key)
    half = {key for keys in keys_of.values() for key in _lowest_half(keys, seed)}
    chosen_N = torch.tensor([key in half for key in view.image_keys])
    return replace(view, rows_N=view.rows_N[chosen_N], labels_N=view.labels_N[chosen_N])


def _lowest_half(keys: Sequence[str], seed: int) -> list[str]:
    hashed = sorted(keys, key=lambda key: hashlib.sha256(f"{seed}:{key}".encode()).digest())
    return hashed[: (len(keys) + 1) // 2]
