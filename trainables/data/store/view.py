"""The image store as trials read it: decoded pixels in one memory-mapped file, shared by a whole node.

Legend: N images; B images of a batch; H, W the largest height and width of their windows; 2 is (height, width);
4 is (top, left, height, width).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.data.listing import listed
from trainables.data.store.contents import read_contents
from trainables.data.store.in_use import InUse
from trainables.mistakes import Mistakes


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
