"""The images of a store as a network takes them: pixels, or the features of a frozen backbone."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from trainables.data.augment import Frame
from trainables.data.split import merged_labels, noisy_labels
from trainables.data.store.features import FeatureSpec, FeatureTable, feature_table
from trainables.data.store.spec import StoreSpec, opened_store
from trainables.data.store.view import FeatureView, Store, StoreView, on_device
from trainables.errors import InvalidInput
from trainables.models.backbones import FEATURES
from trainables.models.config import Lora, ModelConfig
from trainables.models.embedding import EmbeddingModel, embed
from trainables.spec import TrialSpec, derived_seed
from trainables.storage import StorageFailure
from trainables.training.config import TrainingConfig

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
        self._frozen: _Frozen | None = None
        if model.is_frozen:
            augmentation = training.augment if training.views > 1 else "none"
            self._frozen = _frozen(
                self._store, of_backbone(model), training.frame, augmentation, training.views, device
            )

    @property
    def backbone_digest(self) -> str | None:
        """The digest of the frozen backbone with its weights; None if it learns."""
        return self._frozen.digest if self._frozen else None

    def view(self, class_names: Sequence[str]) -> StoreView:
        """Return the images, or their features, of some classes."""
        view = self._store.subset(class_names)
        return FeatureView(**vars(view), table=self._frozen.table) if self._frozen else view

    def features(self) -> Tensor:
        """Return the pooled features of all images of the store before any training, float32 [N, F]; rows as stored."""
        if self._frozen:
            return self._frozen.table.features_VNF[0]
        everything = self._store.subset(self._store.class_names)
        return features_of(everything, of_backbone(self._model), self._frame, self._device)

    def network(self, *, pretrained: bool = True) -> EmbeddingModel:
        """Build the network on the device: with its initial weights and adapters if it is ``pretrained``."""
        if self._frozen:
            config = layers_behind(self._model, self._model.features)
        else:
            config = self._model if pretrained else replace(self._model, weights=None, lora=Lora())
        return EmbeddingModel(config).to(self._device)


def learned_labels(view: StoreView, spec: TrialSpec) -> Tensor:
    """Return the labels [N] of ``view`` that a training of ``spec`` learns: merged, or with noise, if asked for."""
    labels_N = merged_labels(torch.as_tensor(view.labels_N), spec.merge)
    if not spec.label_noise:
        return labels_N
    return torch.tensor(noisy_labels(labels_N.tolist(), view.image_keys, rate=spec.label_noise, seed=spec.noise_seed))


def layers_behind(model: ModelConfig, features: int) -> ModelConfig:
    """Return the network of the layers of ``model`` behind a backbone with ``features`` features."""
    return replace(model, backbone=f"{FEATURES}:{features}", weights=None, freeze=None, pooling="avg", freeze_bn=False)


def of_backbone(model: ModelConfig) -> ModelConfig:
    """Return the network of the backbone and pooling of ``model`` alone; searches that differ in the head share it."""
    return ModelConfig(
        backbone=model.backbone, weights=model.weights, pooling=model.pooling, head="none", embedding_dim=None
    )


class _Frozen:
    """A frozen backbone: its digest, and its features of a store."""

    def __init__(self, digest: str, table: FeatureTable) -> None:
        self.digest = digest
        self.table = table


@lru_cache(maxsize=2)
def _frozen(
    store: Store, model: ModelConfig, frame: Frame, augmentation: str, views: int, device: torch.device
) -> _Frozen:
    digest = backbone_digest(model)
    spec = FeatureSpec(
        images=store.path.name, network=digest, frame=frame, augmentation=augmentation, views=views, device=device.type
    )
    everything = store.subset(store.class_names)
    shape = (views, len(everything), model.features)

    def compute(number: int) -> Tensor:
        return features_of(
            everything,
            model,
            frame,
            device,
            augmentation=augmentation if number else "none",
            seed=derived_seed("view", number),
        )

    return _Frozen(digest, feature_table(spec, store.path.parent, shape, compute, device))


def features_of(
    view: StoreView,
    model: ModelConfig,
    frame: Frame,
    device: torch.device,
    *,
    augmentation: str = "none",
    seed: int = 0,
) -> Tensor:
    """Compute the features of all images of ``view`` by a network without a head, float32 [N, F] on ``device``."""
    return embed(
        untrained(model).to(device), view, frame,
        batch_size=BATCH, device=device, precision="float32",
        augmentation=augmentation, generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip


def untrained(model: ModelConfig) -> EmbeddingModel:
    """Build the network ``model`` with its initial weights; the state of torch's random numbers is kept."""
    with torch.random.fork_rng(devices=[]):
        return EmbeddingModel(model).eval()


def backbone_digest(model: ModelConfig) -> str:
    """Return the SHA-256 (hex) of a backbone, its weights and its pooling."""
    return described_backbone(model)[0]


@lru_cache(maxsize=4)
def described_backbone(model: ModelConfig) -> tuple[str, str | None]:
    """Return the digest of a backbone, and the sentence that says what its file of weights held, if it has one."""
    digest = hashlib.sha256(f"{model.backbone} {model.pooling}".encode())
    network = untrained(of_backbone(model))
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest(), None if network.loaded is None else str(network.loaded)


def whole_network(head: dict[str, Tensor], model: ModelConfig, digest: str) -> dict[str, Tensor]:
    """Return the tensors of a network with a frozen backbone, from those of the layers behind it.

    Args:
        head: the trained tensors.
        model: the network, with the initial weights of its backbone.
        digest: the digest of the backbone that computed the features.

    Raises:
        InvalidInput: the weights of the backbone are missing, or are others now.
    """
    raise_if_other(model, digest)
    state = dict(untrained(of_backbone(model)).state_dict())
    return {**state, **head}


def raise_if_other(model: ModelConfig, digest: str) -> None:
    """Raise :class:`InvalidInput` if the backbone of ``model`` is not that with ``digest``."""
    if backbone_digest(model) != digest:
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
