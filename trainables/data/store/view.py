"""The image store as read by trials: labels, and pixels that are memory-mapped or on the GPU.

Legend: N images; B images of a batch, M of all batches; C classes; H, W the largest height and width of the windows;
2 is (height, width); 4 is (top, left, height, width).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.common.errors import InvalidInput, listed
from trainables.common.files import in_digest_order
from trainables.data.dataset import GALLERY, QUERY, Dataset, grouped
from trainables.data.loading import Features, to_device
from trainables.data.store.cache import InUse
from trainables.data.store.contents import PIXELS, item_of, read_contents
from trainables.metrics import superclass_metrics
from trainables.metrics.retrieval import RetrievalProtocol

logger = logging.getLogger(__name__)

SHARE = 0.25  # of the GPU's free memory that images may take; the network and its activations need the rest


class Store:
    """An open image store; pixels are memory-mapped, so that all processes of a node share them.

    ``features`` is the number of features if it holds vectors, else None. The store is locked against removal during
    the lifetime of this object. Raises :class:`InvalidInput` if there is none at ``path``, or it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._in_use = InUse(path)
        contents = read_contents(path)
        self.features = contents.features
        self._of_items = contents.of_items
        self.labels_N = torch.from_numpy(contents.labels_N)
        self.sizes_N2 = torch.from_numpy(contents.sizes_N2)
        self._pixels = contents.pixels
        self.class_names = contents.class_names
        self.image_keys = contents.image_keys
        self._starts_N = torch.from_numpy(np.cumsum(contents.lengths_N) - contents.lengths_N)

    def __len__(self) -> int:
        return len(self.image_keys)

    def subset(self, class_names: Sequence[str]) -> "StoreView":
        """Return the images of some classes, relabelled 0 … C−1 in the given order."""
        label_of = {name: label for label, name in enumerate(class_names)}
        assert len(label_of) == len(class_names), "class names that repeat"
        if missing := sorted(set(class_names) - set(self.class_names)):
            raise InvalidInput(f"The image store at {str(self.path)!r} has no class {listed(missing)}.")
        relabelled_C = torch.tensor([label_of.get(name, -1) for name in self.class_names])
        labels_N = relabelled_C[self.labels_N]
        rows = torch.nonzero(labels_N >= 0).squeeze(1)
        view = StoreView(store=self, class_names=tuple(class_names), rows_N=rows, labels_N=labels_N[rows])
        return view if self.features is None else FeatureView(**vars(view), features_NF=self.features_NF)

    @property
    def bytes(self) -> int:
        """The size of the pixels or vectors."""
        return len(self._pixels)

    @cached_property
    def features_NF(self) -> Tensor:
        """The vectors of a store of features, float32 [N, F]."""
        assert self.features is not None, "a store of images"
        size = len(self) * self.features
        mapped = torch.from_file(str(self.path / PIXELS), shared=False, size=size, dtype=torch.float32)
        return mapped.view(len(self), self.features)

    def items(self, rows_N: Tensor) -> Any:
        """Return a copy of some items: a list of images (uint8 [H, W, 3]) or other items, or vectors float32 [N, F]."""
        if self.features is not None:
            return self.features_NF[rows_N].cpu().numpy()
        return [self._item(row) for row in rows_N.tolist()]

    def _item(self, row: int) -> Any:
        start, (h, w) = int(self._starts_N[row]), self.sizes_N2[row].tolist()
        if self._of_items:
            return item_of(self._pixels[start : start + h * w].tobytes())
        return self._pixels[start : start + 3 * h * w].reshape(w, h, 3).transpose(1, 0, 2).copy()

    def gather(self, rows_B: Tensor, windows_B4: Tensor) -> Tensor:
        """Return the pixels of one window (int64, inside the image) of each image: uint8 [B, W, H, 3], zero-padded."""
        height, width = windows_B4[:, 2:].amax(dim=0).tolist()
        batch = np.zeros((len(rows_B), width, height, 3), dtype=np.uint8)
        images = zip(batch, self._starts_N[rows_B].tolist(), self.sizes_N2[rows_B].tolist(), windows_B4.tolist())
        for target, start, (h, w), (top, left, tall, wide) in images:
            image = self._pixels[start : start + 3 * h * w].reshape(w, h, 3)
            target[:wide, :tall] = image[left : left + wide, top : top + tall]
        return torch.from_numpy(batch)


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreView:
    """Some classes of a store, relabelled 0 … C−1."""

    store: Store
    class_names: tuple[str, ...]
    rows_N: Tensor
    labels_N: Tensor

    def __len__(self) -> int:
        return len(self.rows_N)

    def sizes(self, indices: Tensor) -> Tensor:
        return self.store.sizes_N2[self.rows_N[indices]]

    def rows(self, indices: Tensor) -> "StoreView":
        """Return some of the images, in the order of ``indices``."""
        return replace(self, rows_N=self.rows_N[indices], labels_N=self.labels_N[indices])

    @property
    def items(self) -> Any:
        """A copy of the items, as :meth:`Store.items` returns it."""
        return self.store.items(self.rows_N)

    @property
    def image_keys(self) -> tuple[str, ...]:
        return tuple(self.store.image_keys[row] for row in self.rows_N.tolist())

    def gather(self, indices: Tensor, windows_B4: Tensor) -> Tensor:
        """Return windows as :meth:`Store.gather` does, for indices of this view."""
        return self.store.gather(self.rows_N[indices], windows_B4)


def blindly(view: StoreView, embed: Callable[[StoreView], Tensor]) -> Tensor:
    """Embed the items of ``view``, [N, D], in an order that says nothing about their classes: of their keys' digests.

    In the order of the data set neighbours are of one class, so embeddings mixed within a batch would know the labels.
    """
    order_N = torch.tensor(in_digest_order(view.image_keys))
    return embed(view.rows(order_N))[order_N.argsort()]


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureView(StoreView, Features):
    """Some classes of a store, as features; ``features_NF`` are those of all its images, float32 [N, F]."""

    features_NF: Tensor

    def features(self, indices_B: Tensor) -> Tensor:
        """Return float32 [B, F]: features of the given items, where they lie."""
        return self.features_NF[self.rows_N[indices_B].to(self.features_NF.device)]

    def is_on(self, device: torch.device) -> bool:
        """Return True if the features lie on the GPU ``device``."""
        return device.type == "cuda" and self.features_NF.is_cuda

    def batches(self, drawn: Sequence[Tensor], labels_N: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features [B, F] and labels [B] of each batch, on the device of the features.

        Their indices ``drawn`` are copied there at once.
        """
        sizes, indices_M = [len(indices_B) for indices_B in drawn], torch.cat(list(drawn))
        everything = (self.rows_N[indices_M], labels_N[indices_M])
        parts = (to_device(self.features_NF.device, tensor_M).split(sizes) for tensor_M in everything)
        for rows_B, labels_B in zip(*parts, strict=True):
            yield self.features_NF[rows_B], labels_B


class ResidentStore(Store):
    """A store with its content copied to ``device``, so that training steps do not wait for copies."""

    def __init__(self, path: Path, device: torch.device) -> None:
        super().__init__(path)
        if self.features is not None:
            self.features_NF = self.features_NF.to(device)
        else:
            mapped = torch.from_file(str(path / PIXELS), shared=False, size=self.bytes, dtype=torch.uint8)
            self._flat_P3 = mapped.to(device).view(-1, 3)

    def gather(self, rows_B: Tensor, windows_B4: Tensor) -> Tensor:
        """Return windows as :meth:`Store.gather` does, on ``device``, padded with arbitrary pixels."""
        device = self._flat_P3.device
        heights_B = self.sizes_N2[rows_B, 0]
        top_B, left_B, _, _ = windows_B4.unbind(1)
        first_B = self._starts_N[rows_B] // 3 + left_B * heights_B + top_B
        height, width = windows_B4[:, 2:].amax(dim=0).tolist()
        columns_BW = first_B[:, None] + heights_B[:, None] * torch.arange(width)
        pixels_BWH = columns_BW.to(device)[:, :, None] + torch.arange(height, device=device)
        return self._flat_P3[pixels_BWH.clamp_(max=len(self._flat_P3) - 1)]


_resident: dict[tuple[Path, torch.device], ResidentStore] = {}


def on_device(store: Store, device: torch.device) -> Store:
    """Return the store with its pixels on a GPU if they fit; all trials of this process share the copy."""
    if device.type != "cuda":
        return store
    key = (store.path, device)
    if key not in _resident:
        _resident.clear()
        torch.cuda.empty_cache()  # what PyTorch keeps of the store before is not free
        free, _ = torch.cuda.mem_get_info(device)
        sizes = store.bytes / 1e9, free / 1e9
        if store.bytes > SHARE * free:
            logger.info("The data (%.1f GB) stay in main memory: the GPU has %.1f GB free.", *sizes)
            return store
        _resident[key] = ResidentStore(store.path, device)
        logger.info("The data (%.1f GB) are on the GPU, which had %.1f GB free.", *sizes)
    return _resident[key]


def superclasses_for(metrics: Sequence[str], dataset: Dataset, view: StoreView) -> torch.Tensor | None:
    """Return the superclass of each image of ``view``, int64 [N], numbered by name; None if no metric needs it."""
    if not superclass_metrics(metrics):
        return None
    superclass_of = dataset.superclasses()
    assert superclass_of is not None, "the plan refuses these metrics on a data set without superclasses"
    _, numbers_C = np.unique([superclass_of[name] for name in view.class_names], return_inverse=True)
    return torch.from_numpy(numbers_C)[view.labels_N]


def protocol_for(dataset: Dataset, keys: Sequence[str]) -> RetrievalProtocol | None:
    """Return the queries and the gallery among some images; None if each is a query against all others."""
    parts, camera_of = dataset.parts(), dataset.cameras()
    if not camera_of and parts.keys().isdisjoint(keys):
        return None
    numbers: dict[str, int] = {}
    cameras = [numbers.setdefault(camera_of[key], len(numbers)) for key in keys] if camera_of else None
    return RetrievalProtocol(
        queries_N=torch.tensor([parts.get(key) != GALLERY for key in keys]),
        gallery_N=torch.tensor([parts.get(key) != QUERY for key in keys]),
        cameras_N=None if cameras is None else torch.tensor(cameras),
    )


def training_half(view: StoreView, seed: int) -> StoreView:
    """Return half of each class's images, rounded up: those with the lowest SHA-256 of ``seed:key``.

    The half joins the gallery of the validation as further wrong neighbours: validation classes are few, so a metric on
    them alone depends on the choice of classes as much as on the configuration (``python -m benchmarks gallery``).
    """
    half: set[str] = set()
    for keys in grouped(zip(view.labels_N.tolist(), view.image_keys, strict=True)).values():
        hashed = in_digest_order([f"{seed}:{key}" for key in keys])
        half.update(keys[at] for at in hashed[: (len(keys) + 1) // 2])
    chosen_N = torch.tensor([key in half for key in view.image_keys])
    return replace(view, rows_N=view.rows_N[chosen_N], labels_N=view.labels_N[chosen_N])
