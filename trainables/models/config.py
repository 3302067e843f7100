"""Which network embeds: the ``model`` section of a search file."""

from dataclasses import dataclass

from trainables.mistakes import raise_if_any
from trainables.models.backbones import BACKBONES
from trainables.models.pooling import POOLING

IMAGENET = "imagenet"


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One embedding network.

    ``weights`` initialises the backbone: ``None`` (random), ``"imagenet"``, or a file (``.safetensors``, or
    what ``torch.save`` wrote of a state dict). ``freeze_bn`` keeps the backbone's batch normalisation as it
    was initialised; ``layer_norm`` normalises the pooled features before the embedding layer.
    """

    backbone: str = "convnet"
    weights: str | None = None
    embedding_dim: int = 64
    pooling: str = "avg"
    freeze_bn: bool = False
    layer_norm: bool = False

    def __post_init__(self) -> None:
        sentences = []
        for name, table in (("backbone", BACKBONES), ("pooling", POOLING)):
            if getattr(self, name) not in table:
                value = getattr(self, name)
                sentences.append(f"model.{name} must be one of {', '.join(table)}; it is {value!r}.")
        row = BACKBONES.get(self.backbone)
        if row is not None and self.weights == IMAGENET and row.imagenet is None:
            published = ", ".join(name for name, other in BACKBONES.items() if other.imagenet)
            sentences.append(
                f"model.weights is {IMAGENET!r}, but {self.backbone} has no ImageNet weights. "
                f"Use null, a file, or a backbone that has them ({published})."
            )
        if type(self.embedding_dim) is not int or self.embedding_dim < 1:
            sentences.append(f"model.embedding_dim must be a whole number of at least 1; it is {self.embedding_dim!r}.")
        raise_if_any(sentences)
