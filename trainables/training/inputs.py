"""The images of a store as a network takes them: pixels, or the features of a frozen backbone.

Features are computed once a node, in evaluation mode, and cached beside the image stores: a folder with the file
``features.bin`` (float32), whose name is a digest of all that determines its content. It is written whole, locked while
it is used, and evicted like an image store.

Legend: N images of the store; F features.
"""

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from trainables.common.errors import InvalidInput
from trainables.common.files import json_digest, write_whole
from trainables.common.storage import DiskFull, StorageFailure, is_full
from trainables.data import Frame
from trainables.data.loading import Images
from trainables.data.split import noisy_labels
from trainables.data.store.cache import InUse, found_or_built
from trainables.data.store.store_spec import StoreSpec, opened_store
from trainables.data.store.view import SHARE, FeatureView, Store, StoreView, blindly, on_device
from trainables.models.backbones import FEATURES, is_own_network
from trainables.models.config import Lora, ModelConfig
from trainables.models.embedding import EmbeddingModel, embed
from trainables.training.spec import TrialSpec
from trainables.training.training_config import TrainingConfig

logger = logging.getLogger(__name__)

BATCH = 64
"""Images whose features are computed at once; fixed, since it may change the last bits of the features."""


class Inputs:
    """The images of ``images`` on ``device``, for a network ``model`` trained with ``training``.

    With a frozen backbone a view holds features, and the network consists of the layers behind the backbone.

    Raises:
        StorageFailure: the images or the cache cannot be reached.
    """

    def __init__(self, images: StoreSpec, model: ModelConfig, training: TrainingConfig, device: torch.device) -> None:
        self._model, self._frame, self._device = model, training.frame, device
        self._store = on_device(opened_images(images), device)
        self._table: FeatureTable | None = None
        if model.is_frozen:
            self._table = feature_table(self._store, of_backbone(model), training.frame, device)

    @property
    def backbone_digest(self) -> str | None:
        """The digest of the frozen backbone with its weights; None if it learns."""
        return self._table.network if self._table else None

    def view(self, class_names: Sequence[str]) -> StoreView:
        """Return the images, or their features, of some classes."""
        view = self._store.subset(class_names)
        return FeatureView(**vars(view), features_NF=self._table.features_NF) if self._table else view

    def features(self) -> Tensor:
        """Return the pooled features of all images of the store before any training, float32 [N, F]; rows as stored."""
        if self._table:
            return self._table.features_NF
        everything = self._store.subset(self._store.class_names)
        return features_of(everything, of_backbone(self._model), self._frame, self._device)

    def network(self, *, pretrained: bool = True) -> EmbeddingModel:
        """Build the network on the device: with its initial weights and adapters if it is ``pretrained``."""
        if self._table:
            behind = f"{FEATURES}:{self._model.features}"
            config = replace(self._model, backbone=behind, weights=None, freeze=None, pooling="avg", freeze_bn=False)
        else:
            config = self._model if pretrained else replace(self._model, weights=None, lora=Lora())
        return EmbeddingModel(config).to(self._device)


def learned_labels(view: StoreView, spec: TrialSpec) -> Tensor:
    """Return the labels [N] of ``view`` that a training of ``spec`` learns: merged, or with noise, if asked for."""
    labels_N = torch.as_tensor(view.labels_N) // spec.merge  # the last group may be smaller
    if not spec.label_noise:
        return labels_N
    return torch.tensor(noisy_labels(labels_N.tolist(), view.image_keys, rate=spec.label_noise, seed=spec.noise_seed))


def of_backbone(model: ModelConfig) -> ModelConfig:
    """Return the network of the backbone and pooling of ``model`` alone; searches that differ in the head share it."""
    return ModelConfig(
        backbone=model.backbone, weights=model.weights, pooling=model.pooling, head="none", embedding_dim=None
    )


FORMAT = 2
TABLE = "features.bin"


class FeatureTable:
    """Features of all images of a store, float32 [N, F], mapped from the cache and locked there, or on a GPU."""

    def __init__(self, path: Path, network: str, shape: tuple[int, int], device: torch.device) -> None:
        self._in_use = InUse(path)
        self.network = network
        mapped = torch.from_file(str(path / TABLE), shared=False, size=math.prod(shape), dtype=torch.float32)
        self.features_NF = mapped.view(shape)
        if device.type == "cuda" and mapped.nbytes <= SHARE * torch.cuda.mem_get_info(device)[0]:
            self.features_NF = self.features_NF.to(device)


@lru_cache(maxsize=2)
def feature_table(store: Store, model: ModelConfig, frame: Frame, device: torch.device) -> FeatureTable:
    """Find or compute the table of ``store`` by the network ``model``; one process computes it, the others wait."""
    network, _ = described_backbone(model)
    content = {  # devices compute slightly different numbers; the name of the store is a digest of the images
        "images": store.path.name, "network": network, "frame": asdict(frame), "device": device.type,
        "format": FORMAT,
    }  # fmt: skip
    everything = store.subset(store.class_names)
    shape = (len(everything), model.features)
    table = store.path.parent / json_digest(content)

    def build(draft: Path) -> None:
        logger.info("Computing %d features of %d images.", *reversed(shape))
        features_NF = features_of(everything, model, frame, device)
        assert features_NF.shape == shape, f"features of shape {tuple(features_NF.shape)}"
        write_whole(draft / TABLE, lambda file: file.write(features_NF.cpu().numpy().tobytes()))

    try:
        held = found_or_built(table, lambda: 4 * math.prod(shape), build)
        try:
            return FeatureTable(table, network, shape, device)
        finally:
            held.close()
    except OSError as error:
        if is_full(error):
            raise DiskFull.at(table, "set dataset.cache to another folder") from error
        raise StorageFailure("The cache of features", error) from error


def features_of(images: Images, model: ModelConfig, frame: Frame, device: torch.device) -> Tensor:
    """Compute the features of all ``images`` by a network without a head, float32 [N, F] on ``device``."""
    network = untrained(model).to(device)

    def embedded(of: Images) -> Tensor:
        return embed(network, of, frame, batch_size=BATCH, device=device, precision="float32")

    if is_own_network(model.backbone) and isinstance(images, StoreView):
        return blindly(images, embedded)
    return embedded(images)


def untrained(model: ModelConfig) -> EmbeddingModel:
    """Build the network ``model`` with its initial weights; the state of torch's random numbers is kept."""
    with torch.random.fork_rng(devices=[]):
        return EmbeddingModel(model).eval()


@lru_cache(maxsize=4)
def described_backbone(model: ModelConfig) -> tuple[str, str | None]:
    """Return the SHA-256 (hex) of a backbone with weights and pooling, and what its file of weights held, in words."""
    digest = hashlib.sha256(f"{model.backbone} {model.pooling}".encode())
    network = untrained(of_backbone(model))
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest(), None if network.loaded is None else str(network.loaded)


def whole_network(head: dict[str, Tensor], model: ModelConfig, digest: str) -> dict[str, Tensor]:
    """Return the tensors of ``model``: its ``head``, and its frozen backbone, which has to be that with ``digest``."""
    raise_if_other(model, digest)
    state = dict(untrained(of_backbone(model)).state_dict())
    return {**state, **head}


def raise_if_other(model: ModelConfig, digest: str) -> None:
    """Raise :class:`InvalidInput` if the backbone of ``model`` is not that with ``digest``."""
    if described_backbone(model)[0] != digest:
        raise InvalidInput(
            f"model.weights is {model.weights!r}, whose content is not that with which the model was trained (the "
            f"backbone's digest was {digest[:12]}…); restore the file."
        )


def opened_images(images: StoreSpec) -> Store:
    """Open the image store; a failing disk or network is a :class:`StorageFailure`, not a mistake in the spec."""
    try:
        return opened_store(images)
    except InvalidInput as error:
        if isinstance(error.__cause__, OSError):
            raise StorageFailure("The store of the images", error.__cause__) from error
        raise
