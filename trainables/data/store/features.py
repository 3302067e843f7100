"""Features of a frozen backbone: computed once a node, in evaluation mode, and cached beside the image stores.

A cached table is a folder of two files: ``features.bin`` (float32, the views one after the other) and ``index.json``.
Its name is a digest of all that determines its content: the image store, the network with its weights, the frame, the
views and the kind of device. It is written whole, locked while it is used, and evicted like an image store.

Legend: V views; N images of the store; B images of a batch; F features.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from trainables.data.augment import Frame
from trainables.data.store.cache import InUse, built_alone
from trainables.data.store.view import SHARE
from trainables.files import write_json, write_whole
from trainables.storage import DiskFull, StorageFailure, is_full

logger = logging.getLogger(__name__)

FORMAT = 1
TABLE, INDEX = "features.bin", "index.json"


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """All that determines a table of features.

    ``images`` is the name of the image store, a digest of its content; ``network`` is a digest of the backbone with its
    weights and pooling. The first view is the centre crop of evaluation; ``views`` − 1 more are drawn with
    ``augmentation``. Devices compute slightly different numbers.
    """

    images: str
    network: str
    frame: Frame
    augmentation: str
    views: int
    device: str

    @property
    def digest(self) -> str:
        content = {**asdict(self), "format": FORMAT}
        if self.views == 1:
            del content["augmentation"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class FeatureTable:
    """Features of all images of a store, float32 [V, N, F], mapped from the cache or on a GPU.

    The table is locked against removal during the lifetime of this object.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int], device: torch.device) -> None:
        self._in_use = InUse(path)
        mapped = torch.from_file(str(path / TABLE), shared=False, size=math.prod(shape), dtype=torch.float32)
        self.features_VNF = mapped.view(shape)
        if device.type == "cuda" and mapped.nbytes <= SHARE * torch.cuda.mem_get_info(device)[0]:
            self.features_VNF = self.features_VNF.to(device)


def feature_table(
    spec: FeatureSpec,
    cache: Path,
    shape: tuple[int, int, int],
    compute: Callable[[int], Tensor],
    device: torch.device,
) -> FeatureTable:
    """Find or compute the table of ``spec`` below ``cache``, and open it on ``device``.

    If several processes need a table, one computes it and the others wait.

    Args:
        spec: what determines it.
        cache: the folder of the image stores.
        shape: V, N and F.
        compute: returns a view, float32 [N, F].
        device: a GPU holds the table if it fits.

    Raises:
        DiskFull: there is no space left.
        StorageFailure: the cache cannot be written or read.
    """
    table = cache / spec.digest
    try:
        held = InUse(table)  # locked before it exists, so that it cannot be evicted between building and use
        try:
            with built_alone(table, lambda: 4 * math.prod(shape)) as draft:
                if draft is not None:
                    logger.info("Computing %d features of %d images (%d views).", shape[2], shape[1], shape[0])
                    _write(draft, spec, shape, compute)
            return FeatureTable(table, shape, device)
        finally:
            held.close()
    except OSError as error:
        if is_full(error):
            raise DiskFull.at(table, "set dataset.cache to another folder") from error
        raise StorageFailure("The cache of features", error) from error


def _write(folder: Path, spec: FeatureSpec, shape: tuple[int, int, int], compute: Callable[[int], Tensor]) -> None:
    views, images, features = shape

    def write(file: IO[bytes]) -> None:
        for view in range(views):
            features_NF = compute(view)
            assert features_NF.shape == (images, features), f"features of shape {tuple(features_NF.shape)}"
            file.write(features_NF.cpu().numpy().tobytes())

    write_whole(folder / TABLE, write)
    write_json(folder / INDEX, {"format": FORMAT, "shape": shape, **asdict(spec)})
