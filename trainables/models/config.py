"""The model section of a search file; pooling and the embedding layer's initialisation by name."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.mistakes import raise_if_any, suggestion
from trainables.models.backbones import (
    BACKBONES,
    Backbone,
    backbone,
    backbone_problems,
    features_backbone,
    on_features,
)
from trainables.parts import PartRow, PartTable, is_own

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class PoolingRow(PartRow):
    """A pooling of maps, or of ``tokens``; the vectors have ``width`` times the features."""

    tokens: bool = False
    width: int = 1


_ROWS = {
    "avg": PoolingRow(path="trainables.models.networks:Average"),
    "max": PoolingRow(path="trainables.models.networks:Maximum"),
    "avg_max": PoolingRow(path="trainables.models.networks:AverageAndMaximum"),
    "gem": PoolingRow(path="trainables.models.networks:fixed_gem"),
    "gem_learned": PoolingRow(path="trainables.models.networks:learned_gem"),
    "cls": PoolingRow(path="trainables.models.networks:ClassToken", tokens=True),
    "mean": PoolingRow(path="trainables.models.networks:PatchMean", tokens=True),
    "cls_mean": PoolingRow(path="trainables.models.networks:ClassTokenAndPatchMean", tokens=True, width=2),
}

LEARNED_POOLING = "gem_learned"

POOLING: "PartTable[Callable[[], nn.Module], PoolingRow]" = PartTable("pooling", _ROWS)
"""Pooling by name: ``POOLING[name]()`` is a layer to vectors from maps [B, F, h, w], or from a transformer's tokens
[B, 1 + T, F], the class token first."""

OWN_POOLING = "avg"
"""With this value a transformer pools its tokens itself, to maps of one position."""


def pooling_problems(pooling: str, name: str, row: Backbone) -> list[str]:
    """Return an error if the backbone ``name``, described by ``row``, does not give what ``pooling`` pools."""
    of_tokens = POOLING.rows[pooling].tokens
    if of_tokens == (row.tokens is not None) or (pooling == OWN_POOLING and row.tokens is not None):
        return []
    fitting = [other for other, entry in POOLING.rows.items() if entry.tokens is not of_tokens]
    needs = "tokens with a class token" if of_tokens else "maps"
    own = f", or {OWN_POOLING} for the network's own pooling" if row.tokens is not None else ""
    return [
        f"model.pooling is {pooling}, which needs {needs}, and {name} does not give them; use one of "
        f"{', '.join(fitting)}{own}."
    ]


_INIT_ROWS = {
    "kaiming_normal": PartRow(path="trainables.models.heads:kaiming_normal_head"),
    "linear": PartRow(path="trainables.models.heads:linear_head"),
    "truncated_normal": PartRow(path="trainables.models.heads:truncated_normal_head"),
}

HEAD_INIT: "PartTable[Callable[[nn.Linear], object], PartRow]" = PartTable("head_init", _INIT_ROWS)
"""Initialisation of the embedding layer by name: ``HEAD_INIT[name](layer)`` changes a new ``nn.Linear``."""

HEADS = ("linear", "mlp", "residual", "none")
"""Layers from pooled features to embeddings; ``none`` keeps the features."""

BACKBONE = "backbone"
"""The value of ``freeze`` that freezes the whole backbone."""

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

    Names with a colon (``torchvision:NAME``, ``timm:NAME``, an import path) are resolved when the network is built.
    Patterns of ``freeze`` match as by :func:`fnmatch.fnmatchcase`.
    """

    backbone: str = "convnet"
    """A network of `holdout backbones`, `torchvision:NAME`, `timm:NAME`, or the import path of your own. For a data set
    of embeddings it is set to their number. Example: resnet50.
    """
    weights: str | None = None
    """The weights that training begins with: null (random), `imagenet`, or a file (`.safetensors`, or a state dict of
    `torch.save`). Nothing is downloaded. Example: imagenet.
    """
    embedding_dim: int | None = 64
    """The numbers of an embedding; null: as many as features. Range: at least 1, at most 65536."""
    pooling: str = "avg"
    """The pooling of the backbone's maps: `avg`, `max`, `avg_max` (their sum), `gem` or `gem_learned`; or of a
    transformer's tokens: `cls`, `mean` over the patches, or `cls_mean`, one after the other (twice the features). For a
    transformer `avg` is the network's own pooling.
    """
    freeze: str | tuple[str, ...] | None = None
    """`backbone` trains only the layers behind it, on features that are computed once; a list such as `["conv1*",
    "layer[12].*"]` freezes the parameters of matching names with the running statistics of their layers; null trains
    everything. Example: backbone.
    """
    freeze_bn: bool | str = False
    """True freezes the backbone's batch normalisation; `statistics` only the running means and variances, while weights
    and biases learn; false trains with each batch's statistics.
    """
    layer_norm: bool = False
    """True normalises the pooled features."""
    head: str = "linear"
    """The layers from features to embeddings: one `linear` layer; an `mlp` with hidden layers of `head_widths`, each
    with layer normalisation, ReLU and `head_dropout`; `residual`, a bottleneck of `head_widths` that is added to the
    features and is zero at the start; `none`, the features themselves.
    """
    head_widths: tuple[int, ...] = (512,)
    """The widths of the hidden layers. Range: whole numbers between 1 and 65536. Example: [512]."""
    head_dropout: float = 0.0
    """The dropout in the hidden layers. Range: at least 0, less than 1."""
    head_init: str = "kaiming_normal"
    """The initial weights of the embedding layer from F features to D numbers: `kaiming_normal`, N(0, 2/D) as in
    Proxy-Anchor's code; `linear`, PyTorch's uniform ±1/√F as in PNP's; `truncated_normal`, N(0, 0.001²) within ±0.002
    as in that of Sampling Wisely.
    """

    def __post_init__(self) -> None:
        sentences = backbone_problems(self.backbone)
        row = BACKBONES.get(self.backbone)
        if self.weights == IMAGENET and row is not None and row.imagenet is None:
            sentences.append(no_imagenet_weights(self.backbone))
        known = features_backbone("1") if on_features(self.backbone) else row
        if self.pooling in POOLING and known is not None:
            sentences += pooling_problems(self.pooling, self.backbone, known)
        if self.pooling not in POOLING:
            sentences.append(_not_one_of("pooling", self.pooling, POOLING))
        if self.head_init not in HEAD_INIT:
            sentences.append(_not_one_of("head_init", self.head_init, HEAD_INIT))
        if self.freeze_bn not in (False, STATISTICS, True):
            sentences.append(f"model.freeze_bn must be false, statistics or true; it is {self.freeze_bn!r}.")
        if self.embedding_dim is not None and not _is_width(self.embedding_dim):
            sentences.append(
                f"model.embedding_dim must be a whole number between 1 and {MOST_DIMENSIONS}, or null for the "
                f"backbone's; it is {self.embedding_dim!r}."
            )
        sentences += self._head_mistakes()
        sentences += self._freeze_mistakes()
        raise_if_any(sentences)

    def _head_mistakes(self) -> list[str]:
        sentences = []
        if self.head not in HEADS:
            sentences.append(_not_one_of("head", self.head, HEADS))
        if not self.head_widths or not all(map(_is_width, self.head_widths)):
            sentences.append(
                f"model.head_widths must be whole numbers between 1 and {MOST_DIMENSIONS}, at least one; they are "
                f"{list(self.head_widths)}."
            )
        if not 0 <= self.head_dropout < 1:
            sentences.append(f"model.head_dropout must be in [0, 1); it is {self.head_dropout!r}.")
        if self.head == "none" and self.embedding_dim is not None:
            sentences.append(
                f"model.head is none, which keeps the features, and model.embedding_dim is {self.embedding_dim}; set "
                "embedding_dim to null, or head to linear."
            )
        return sentences

    def _freeze_mistakes(self) -> list[str]:
        if self.freeze is None:
            return []
        if isinstance(self.freeze, str) and self.freeze != BACKBONE:
            return [
                f"model.freeze must be null, {BACKBONE} or a list of patterns of parameter names, such as [layer1.*]; "
                f"it is {self.freeze!r}{suggestion(self.freeze, [BACKBONE])}."
            ]
        if not self.freeze:
            return ["model.freeze is an empty list; give patterns of parameter names, or null."]
        if not self.is_frozen:
            return []
        sentences = []
        if self.weights is None and not is_own(self.backbone):
            sentences.append(
                f"model.freeze is {BACKBONE} and model.weights null: the features of a random network are not worth "
                "training on. Give weights, or freeze null."
            )
        if self.head == "none":
            sentences.append(
                f"model.freeze is {BACKBONE} and model.head none, so nothing of the network learns; give another head, "
                "or freeze null."
            )
        if self.pooling == LEARNED_POOLING:
            sentences.append(
                f"model.freeze is {BACKBONE} and model.pooling {LEARNED_POOLING}, whose exponent learns, so that "
                "features cannot be computed in advance; use gem, or freeze null."
            )
        return sentences

    @property
    def is_frozen(self) -> bool:
        """True if only the head learns."""
        return self.freeze == BACKBONE

    @property
    def is_pretrained(self) -> bool:
        """True if the features before any training are worth scoring: those of given weights, or given themselves."""
        return self.weights is not None or self.is_frozen or on_features(self.backbone)

    @property
    def features(self) -> int:
        """The number of pooled features of the backbone, which is looked up."""
        return backbone(self.backbone).features * POOLING.rows[self.pooling].width

    @property
    def dimensions(self) -> int:
        """The number of dimensions of an embedding; without ``embedding_dim`` the backbone is looked up."""
        return self.features if self.embedding_dim is None else self.embedding_dim


def _not_one_of(key: str, value: str, known: Iterable[str]) -> str:
    return f"model.{key} must be one of {', '.join(known)}; it is {value!r}{suggestion(value, known)}."


def _is_width(value: object) -> bool:
    return type(value) is int and 1 <= value <= MOST_DIMENSIONS
