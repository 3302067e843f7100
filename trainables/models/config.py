"""The model section of a search file; pooling and the embedding layer's initialisation by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.mistakes import raise_if_any
from trainables.models.backbones import BACKBONES, backbone_problems
from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from torch import nn


_ROWS = {
    "avg": PartRow(path="trainables.models.networks:Average"),
    "max": PartRow(path="trainables.models.networks:Maximum"),
    "avg_max": PartRow(path="trainables.models.networks:AverageAndMaximum"),
    "gem": PartRow(path="trainables.models.networks:fixed_gem"),
    "gem_learned": PartRow(path="trainables.models.networks:learned_gem"),
}

POOLING: "PartTable[Callable[[], nn.Module], PartRow]" = PartTable("pooling", _ROWS)
"""Pooling by name: ``POOLING[name]()`` is a layer from maps [B, F, h, w] to vectors [B, F]."""

_INIT_ROWS = {
    "kaiming_normal": PartRow(path="trainables.models.networks:kaiming_normal_head"),
    "linear": PartRow(path="trainables.models.networks:linear_head"),
    "truncated_normal": PartRow(path="trainables.models.networks:truncated_normal_head"),
}

HEAD_INIT: "PartTable[Callable[[nn.Linear], object], PartRow]" = PartTable("head_init", _INIT_ROWS)
"""Initialisation of the embedding layer by name: ``HEAD_INIT[name](layer)`` changes a new ``nn.Linear``."""

STATISTICS = "statistics"
"""The value of ``freeze_bn`` that freezes the running statistics of batch normalisation only."""

IMAGENET = "imagenet"
MOST_DIMENSIONS = 65_536
"""Limit of an embedding's dimensions, which the last layer grows with; the papers have 2,048 at most."""


def no_imagenet_weights(backbone: str) -> str:
    """Return the error for a backbone without published ImageNet weights."""
    return (
        f"model.weights is {IMAGENET!r}, but {backbone} has no ImageNet weights. "
        "Use null, a file, or a backbone that has them (`holdout backbones`)."
    )


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The ``model`` section of a search file: one embedding network.

    ``backbone`` is a row of ``BACKBONES``, ``torchvision:NAME``, ``timm:NAME`` or an import path; names after a colon
    are resolved when the network is built. ``weights`` initialises it: None (random), ``"imagenet"``, or a file
    (``.safetensors``, or a state dict saved by ``torch.save``). ``freeze_bn: true`` freezes its batch normalisation as
    initialised; with ``statistics`` only the running statistics are frozen and used, and its weights and biases learn.
    ``layer_norm`` normalises the pooled features before the embedding layer, which ``head_init``, a row of
    ``HEAD_INIT``, initialises.
    """

    backbone: str = "convnet"
    weights: str | None = None
    embedding_dim: int = 64
    pooling: str = "avg"
    freeze_bn: bool | str = False
    layer_norm: bool = False
    head_init: str = "kaiming_normal"

    def __post_init__(self) -> None:
        sentences = backbone_problems(self.backbone)
        row = BACKBONES.get(self.backbone)
        if self.weights == IMAGENET and row is not None and row.imagenet is None:
            sentences.append(no_imagenet_weights(self.backbone))
        if self.pooling not in POOLING:
            sentences.append(f"model.pooling must be one of {', '.join(POOLING)}; it is {self.pooling!r}.")
        if self.head_init not in HEAD_INIT:
            sentences.append(f"model.head_init must be one of {', '.join(HEAD_INIT)}; it is {self.head_init!r}.")
        if self.freeze_bn not in (False, STATISTICS, True):
            sentences.append(f"model.freeze_bn must be false, statistics or true; it is {self.freeze_bn!r}.")
        if type(self.embedding_dim) is not int or not 1 <= self.embedding_dim <= MOST_DIMENSIONS:
            sentences.append(
                f"model.embedding_dim must be a whole number between 1 and {MOST_DIMENSIONS}; it is "
                f"{self.embedding_dim!r}."
            )
        raise_if_any(sentences)
