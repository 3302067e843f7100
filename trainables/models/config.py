"""The model section of a search file; pooling and the embedding layer's initialisation by name."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from trainables.common.errors import Mistake, raise_if_any
from trainables.common.part_tables import PartRow, PartTable, is_own
from trainables.common.rules import Bounds, OneOf, rule_mistakes
from trainables.models.backbones import BACKBONES, Backbone, backbone, backbone_problems, features_backbone, on_features

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class PoolingRow(PartRow):
    """A pooling of maps, or of ``tokens``; the vectors have ``width`` times the features."""

    tokens: bool = False
    width: int = 1


POOLING: "PartTable[Callable[[], nn.Module], PoolingRow]" = PartTable("pooling", {
    "avg": PoolingRow(path="trainables.models.networks:Average"),
    "max": PoolingRow(path="trainables.models.networks:Maximum"),
    "avg_max": PoolingRow(path="trainables.models.networks:AverageAndMaximum"),
    "gem": PoolingRow(path="trainables.models.networks:fixed_gem"),
    "gem_learned": PoolingRow(path="trainables.models.networks:learned_gem"),
    "cls": PoolingRow(path="trainables.models.networks:ClassToken", tokens=True),
    "mean": PoolingRow(path="trainables.models.networks:PatchMean", tokens=True),
    "cls_mean": PoolingRow(path="trainables.models.networks:ClassTokenAndPatchMean", tokens=True, width=2),
})  # fmt: skip
"""Pooling by name: ``POOLING[name]()`` is a layer to vectors from maps [B, F, h, w], or from a transformer's tokens
[B, 1 + T, F], the class token first."""

OWN_POOLING = "avg"  # with this value a transformer pools its tokens itself, to maps of one position


def pooling_problems(pooling: str, name: str, row: Backbone) -> list[Mistake]:
    """Return a mistake if the backbone ``name``, described by ``row``, does not give what ``pooling`` pools."""
    of_tokens = POOLING.rows[pooling].tokens
    if of_tokens == (row.tokens is not None) or (pooling == OWN_POOLING and row.tokens is not None):
        return []
    fitting = [other for other, entry in POOLING.rows.items() if entry.tokens is not of_tokens]
    needs = "tokens with a class token" if of_tokens else "maps"
    own = f", or {OWN_POOLING} for the network's own pooling" if row.tokens is not None else ""
    text = f"is {pooling}, which needs {needs}, and {name} does not give them"
    return [Mistake("pooling", text, f"use one of {', '.join(fitting)}{own}", ("pooling", "backbone"))]


HEAD_INIT: "PartTable[Callable[[nn.Linear], object], PartRow]" = PartTable("head_init", {
    "kaiming_normal": PartRow(path="trainables.models.embedding:kaiming_normal_head"),
    "linear": PartRow(path="trainables.models.embedding:linear_head"),
    "truncated_normal": PartRow(path="trainables.models.embedding:truncated_normal_head"),
})  # fmt: skip
"""Initialisation of the embedding layer by name: ``HEAD_INIT[name](layer)`` changes a new ``nn.Linear``."""

HEADS = ("linear", "mlp", "none")  # from pooled features to embeddings; none keeps the features
BACKBONE = "backbone"  # the value of ``freeze`` that freezes the whole backbone
ALL_BUT = re.compile(r"all_but_([1-9]\d*)")  # that which freezes all but its last blocks, and what follows them


@dataclass(frozen=True)
class Freezing(OneOf):
    """The rule of ``freeze``."""

    @property
    def text(self) -> str:
        return f"{BACKBONE}, all_but_N with a number N, a list, or null"

    def _holds(self, value: Any) -> bool:
        return super()._holds(value) or ALL_BUT.fullmatch(value) is not None


STATISTICS = "statistics"  # the value of ``freeze_bn`` that freezes running statistics only
IMAGENET = "imagenet"
MOST_DIMENSIONS = 65_536  # of an embedding, which the last layer grows with; the papers have 2,048 at most


def no_imagenet_weights(backbone: str) -> Mistake:
    """Return the mistake of a backbone without published ImageNet weights."""
    text = f"is {IMAGENET!r}, but {backbone} has no ImageNet weights"
    fix = "use null, a file, or a backbone that has them (`holdout backbones`)"
    return Mistake("weights", text, fix, ("weights", "backbone"))


Width = Bounds(ge=1, le=MOST_DIMENSIONS)


@dataclass(frozen=True, kw_only=True)
class Lora:
    """LoRA: adapters of low rank learn beside the backbone's weights, which are frozen."""

    rank: Annotated[int | None, Bounds(ge=1)] = None
    """The rank of the adapters of the backbone's linear, attention and convolutional layers; its weights and
    normalisation are frozen. null: no adapters. The exported model has them merged into its weights. Example: 8.
    """
    alpha: Annotated[float, Bounds(gt=0)] = 16.0
    """The adapters are multiplied by `alpha` over `rank`."""

    def __post_init__(self) -> None:
        raise_if_any(rule_mistakes(self))


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
    `torch.save`). `holdout backbones NAME --download` downloads ImageNet's. Example: imagenet.
    """
    embedding_dim: Annotated[int | None, Width] = 64
    """The dimensions of an embedding; null: as many as features."""
    pooling: Annotated[str, OneOf(POOLING)] = "avg"
    """The pooling of the backbone's maps: `avg`, `max`, `avg_max` (their sum), `gem` or `gem_learned`; or of a
    transformer's tokens: `cls`, `mean` over the patches, or `cls_mean`, one after the other (twice the features). For a
    transformer `avg` is the network's own pooling.
    """
    freeze: Annotated[str | tuple[str, ...] | None, Freezing((BACKBONE, "all_but_1"), ("a list", "null"))] = None
    """`backbone` trains only the layers behind it, on features that are computed once; `all_but_2` freezes all before
    its last two blocks, and a list such as `["conv1*", "layer[12].*"]` the parameters of matching names, both with the
    running statistics of their layers; null trains everything. Example: backbone.
    """
    freeze_bn: Annotated[bool | str, OneOf((STATISTICS,), ("true", "false"))] = False
    """True freezes the backbone's batch normalisation; `statistics` only the running means and variances, while weights
    and biases learn; false trains with each batch's statistics.
    """
    lora: Lora = field(default_factory=Lora)
    """The training of adapters instead of the backbone's weights (LoRA)."""
    layer_norm: bool = False
    """True normalises the pooled features."""
    head: Annotated[str, OneOf(HEADS)] = "linear"
    """The layers from features to embeddings: one `linear` layer; an `mlp` with hidden layers of `head_widths`, each
    with layer normalisation, ReLU and `head_dropout`; `none`, the features themselves.
    """
    head_widths: Annotated[tuple[int, ...], Width] = (512,)
    """The widths of the hidden layers. Example: [512]."""
    head_dropout: Annotated[float, Bounds(ge=0, lt=1)] = 0.0
    """The dropout in the hidden layers."""
    head_init: Annotated[str, OneOf(HEAD_INIT)] = "kaiming_normal"
    """The initial weights of the embedding layer from F features to D numbers: `kaiming_normal`, N(0, 2/D) as in
    Proxy-Anchor's code; `linear`, PyTorch's uniform ±1/√F as in PNP's; `truncated_normal`, N(0, 0.001²) within ±0.002
    as in that of Sampling Wisely.
    """

    def __post_init__(self) -> None:
        mistakes = [*backbone_problems(self.backbone), *rule_mistakes(self)]
        row = BACKBONES.get(self.backbone)
        if self.weights == IMAGENET and row is not None and row.imagenet is None:
            mistakes.append(no_imagenet_weights(self.backbone))
        known = features_backbone("1") if on_features(self.backbone) else row
        if self.pooling in POOLING and known is not None:
            mistakes += pooling_problems(self.pooling, self.backbone, known)
        if not self.head_widths:
            mistakes.append(Mistake("head_widths", "must have at least one entry", "it is []"))
        if self.head == "none" and self.embedding_dim is not None:
            text = f"is none, which keeps the features, and embedding_dim is {self.embedding_dim}"
            fix = "set embedding_dim to null, or head to linear"
            mistakes.append(Mistake("head", text, fix, ("head", "embedding_dim")))
        mistakes += self._freeze_mistakes()
        if self.lora.rank is not None and (self.freeze is not None or on_features(self.backbone)):
            text, fix = f"is {self.lora.rank} and needs a backbone that learns", "set it or freeze to null"
            mistakes.append(Mistake("lora.rank", text, fix, ("lora.rank", "freeze", "backbone")))
        raise_if_any(mistakes)

    def changed(self, values: Mapping[str, Any]) -> "ModelConfig":
        """Return a copy with other ``values`` by name, those of LoRA as ``lora.rank`` and ``lora.alpha``."""
        if not values:  # in most searches, and a copy is checked again
            return self
        of_lora = {name.removeprefix("lora."): value for name, value in values.items() if name.startswith("lora.")}
        others = {name: value for name, value in values.items() if not name.startswith("lora.")}
        return replace(self, lora=replace(self.lora, **of_lora), **others)

    def _freeze_mistakes(self) -> Iterator[Mistake]:
        if self.freeze == ():
            yield Mistake("freeze", "is an empty list", "give patterns of parameter names, or null")
        if not self.is_frozen:
            return
        if self.weights is None and not is_own(self.backbone):
            text = f"is {BACKBONE} and weights null: the features of a random network are not worth training on"
            yield Mistake("freeze", text, "give weights, or freeze null", ("freeze", "weights", "backbone"))
        if self.head == "none":
            text = f"is {BACKBONE} and head none, so nothing of the network learns"
            yield Mistake("freeze", text, "give another head, or freeze null", ("freeze", "head"))
        if self.pooling == "gem_learned":
            why = "whose exponent learns, so that features cannot be computed in advance"
            text = f"is {BACKBONE} and pooling {self.pooling}, {why}"
            yield Mistake("freeze", text, "use gem, or freeze null", ("freeze", "pooling"))

    @property
    def is_frozen(self) -> bool:
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
