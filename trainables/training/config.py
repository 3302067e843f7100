"""The training section of a search file, and optimisers by name."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainables.data.augment import AUGMENTATIONS, Frame
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.mistakes import raise_if_any
from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


# The optimisers of the papers, and how a training's parameters are grouped for them.

_ROWS = {
    "adamw": PartRow(path="trainables.training.optimizers:AdamW"),  # Multi Proxy Anchor, the thesis
    "adam": PartRow(path="trainables.training.optimizers:Adam"),  # PNP, Sampling Wisely
}

OPTIMIZERS: "PartTable[type[Optimizer], PartRow]" = PartTable("optimizer", _ROWS)


def parameter_group(parameters: "Iterable[nn.Parameter]", lr: float) -> dict[str, Any]:
    """The parameters that learn (frozen batch-norm's do not), at the learning rate ``lr``."""
    return {"params": [parameter for parameter in parameters if parameter.requires_grad], "lr": lr}


# How a model is trained: the ``training`` section of a search file.

RESIZE = 256 / 224  # the short side before a crop over the side after it, as ImageNet's evaluation has it
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rates are multiplied by ``gamma`` every ``step`` epochs, or after each of the epochs ``milestones``.

    With neither they stay as they are.
    """

    step: int | None = None
    milestones: tuple[int, ...] = ()
    gamma: float = 0.5

    def __post_init__(self) -> None:
        mistakes = []
        if self.step is not None and self.step < 1:
            mistakes.append(f"schedule.step must be at least 1 epoch, or null for no schedule; it is {self.step}.")
        if self.milestones != tuple(sorted({epoch for epoch in self.milestones if epoch >= 1})):
            mistakes.append(
                f"schedule.milestones must be epochs of at least 1, each later than the one before; they are "
                f"{list(self.milestones)}."
            )
        if self.step is not None and self.milestones:
            mistakes.append(
                f"schedule.step is {self.step} and schedule.milestones are {list(self.milestones)}; give one of them "
                "and leave the other null or empty."
            )
        if not 0 < self.gamma <= 1:
            mistakes.append(f"schedule.gamma must lie in (0, 1]; it is {self.gamma}.")
        raise_if_any(mistakes)

    def changes(self, epochs: int) -> tuple[int, ...]:
        """After which of the first ``epochs`` epochs the learning rates change."""
        return self.milestones if self.step is None else tuple(range(self.step, epochs, self.step))


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One training's settings.

    ``sampler`` is a row of ``BATCH_SAMPLERS`` or the import path of one's own, which is looked up when it is used.
    ``head_lr=None`` means ``lr``; ``proxy_lr=None`` means that of the loss's paper. ``warmup_epochs`` train the
    head and the proxies alone. Images are resized to a short side of ``resize_size`` pixels before they are cropped
    to ``image_size`` (``None``: 256 for 224, and in this proportion), or with ``resize_square`` to that height and
    width, in training (but for ``resized_crop_flip``, which cuts from the whole image) and wherever a model is scored.
    ``clip_grad`` bounds each gradient entry, as Proxy-Anchor's code does (``None``: unbounded). ``precision="auto"``
    is bfloat16 autocast on CUDA and float32 elsewhere.
    """

    epochs: int = 8
    batch_size: int = 120
    sampler: str = "balanced"
    images_per_class: int = 5
    image_size: int = 32
    resize_size: int | None = None
    resize_square: bool = False
    augment: str = "crop_flip"
    optimizer: str = "adamw"
    lr: float = 1e-3
    head_lr: float | None = None
    proxy_lr: float | None = None
    weight_decay: float = 1e-4
    schedule: Schedule = field(default_factory=Schedule)
    warmup_epochs: int = 0
    clip_grad: float | None = 10
    precision: str = "auto"

    def __post_init__(self) -> None:
        mistakes = BATCH_SAMPLERS.problems("sampler", self.sampler)
        tables: dict[str, Iterable[str]] = {
            "augment": AUGMENTATIONS,
            "optimizer": OPTIMIZERS,
            "precision": PRECISIONS,
        }
        for name, table in tables.items():
            if getattr(self, name) not in table:
                mistakes.append(f"{name} must be one of {', '.join(table)}; it is {getattr(self, name)!r}.")
        for name in ("epochs", "batch_size", "images_per_class", "image_size"):
            if getattr(self, name) < 1:
                mistakes.append(f"{name} must be at least 1; it is {getattr(self, name)}.")
        if self.resize_size is not None and self.resize_size < self.image_size:
            mistakes.append(
                f"resize_size must be at least image_size ({self.image_size}), or null; it is {self.resize_size}."
            )
        for name in ("lr", "head_lr", "proxy_lr", "clip_grad"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                mistakes.append(f"{name} must be positive and finite; it is {value}.")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            mistakes.append(f"weight_decay must be at least 0 and finite; it is {self.weight_decay}.")
        if not 0 <= self.warmup_epochs <= self.epochs:
            mistakes.append(f"warmup_epochs must lie between 0 and epochs ({self.epochs}); it is {self.warmup_epochs}.")
        raise_if_any(mistakes)

    @property
    def embedding_batch(self) -> int:
        """How many images are embedded at once: without gradients there is room for more than in training."""
        return 2 * self.batch_size

    @property
    def frame(self) -> Frame:
        """How images are cut for the network."""
        short_side = self.resize_size or round(self.image_size * RESIZE)
        return Frame(side=self.image_size, short_side=short_side, square=self.resize_square)
