"""The image store as trials read it: decoded pixels in one memory-mapped file, shared by a whole node.

A store is a folder of three files, made by :func:`trainables.data.store.build_store` and never changed after:

- ``pixels.bin``: uint8, the images one after the other, each row by row in RGB, of whatever size;
- ``arrays.npz``: ``labels_N`` (int64, indices of class names) and ``sizes_N2`` (int64, height and width);
- ``index.json``: the format, the class names and the image keys.

Legend: N images; B images of a batch; H, W the largest height and width among them; 2 is (height, width).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from trainables.data.listing import listed
from trainables.mistakes import Mistakes

FORMAT = 1
PIXELS, ARRAYS, INDEX = "pixels.bin", "arrays.npz", "index.json"


class Store:
    """An image store, opened from its path alone; pixels are read from disk when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            index = json.loads((path / INDEX).read_text())
            with np.load(path / ARRAYS) as arrays:
                self.labels_N = torch.from_numpy(arrays["labels_N"])
                self.sizes_N2 = torch.from_numpy(arrays["sizes_N2"])
            self._pixels = np.memmap(path / PIXELS, dtype=np.uint8, mode="r")
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise Mistakes(f"There is no readable image store at {str(path)!r} ({error}).") from error
        self.class_names = tuple(index["class_names"])
        self.image_keys = tuple(index["image_keys"])
        lengths_N = 3 * self.sizes_N2.prod(dim=1).numpy()
        self._starts_N = np.cumsum(lengths_N) - lengths_N
        if index["format"] != FORMAT or len(self._pixels) != lengths_N.sum():
            raise Mistakes(f"The image store {str(path)!r} is damaged. Remove it to build it again.")

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
        place = {name: label for label, name in enumerate(class_names)}
        assert len(place) == len(class_names), "class names that repeat"
        if missing := sorted(set(class_names) - set(self.class_names)):
            raise Mistakes(f"The image store at {str(self.path)!r} has no class {listed(missing)}.")
        relabelled_C = torch.tensor([place.get(name, -1) for name in self.class_names])
        labels_N = relabelled_C[self.labels_N]
        rows = torch.nonzero(labels_N >= 0).squeeze(1)
        return StoreView(store=self, class_names=tuple(class_names), rows_N=rows, labels_N=labels_N[rows])

    def gather(self, indices: Tensor | np.ndarray | Sequence[int]) -> tuple[Tensor, Tensor]:
        """The pixels of some images, uint8 [B, 3, H, W] with zeros beyond each; their sizes, int64 [B, 2]."""
        rows_B = torch.as_tensor(indices, dtype=torch.int64)
        sizes_B2 = self.sizes_N2[rows_B]
        height, width = sizes_B2.amax(dim=0).tolist()
        batch = np.zeros((len(rows_B), height, width, 3), dtype=np.uint8)
        starts_B = self._starts_N[rows_B.numpy()]
        for image, start, (h, w) in zip(batch, starts_B.tolist(), sizes_B2.tolist(), strict=True):
            image[:h, :w] = self._pixels[start : start + 3 * h * w].reshape(h, w, 3)
        return torch.from_numpy(batch).permute(0, 3, 1, 2), sizes_B2


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreView:
    """Some classes of a store, with their own labels 0 … C−1."""

    store: Store
    class_names: tuple[str, ...]
    rows_N: Tensor
    labels_N: Tensor

    def __len__(self) -> int:
        return len(self.rows_N)

    @property
    def sizes_N2(self) -> Tensor:
        """Height and width of each image, int64 [N, 2]."""
        return self.store.sizes_N2[self.rows_N]

    @property
    def image_keys(self) -> tuple[str, ...]:
        """The data set's keys of the images."""
        return tuple(self.store.image_keys[row] for row in self.rows_N.tolist())

    def gather(self, indices: Tensor | np.ndarray | Sequence[int]) -> tuple[Tensor, Tensor]:
        """As :meth:`Store.gather`, with the indices of this view."""
        return self.store.gather(self.rows_N[torch.as_tensor(indices, dtype=torch.int64)])
