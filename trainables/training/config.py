"""The ``training`` section of a search file, and the table of optimizers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainables.data.augment import AUGMENTATIONS, Frame
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.mistakes import raise_if_any, suggestion
from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

_ROWS = {
    "adamw": PartRow(path="trainables.training.optimizers:AdamW"),  # Multi Proxy Anchor, the thesis
    "adam": PartRow(path="trainables.training.optimizers:Adam"),  # PNP, Sampling Wisely
}

OPTIMIZERS: "PartTable[type[Optimizer], PartRow]" = PartTable("optimizer", _ROWS)


def parameter_group(parameters: "Iterable[nn.Parameter]", lr: float) -> dict[str, Any]:
    """Return an optimizer group of the parameters that require gradients, at the learning rate ``lr``."""
    return {"params": [parameter for parameter in parameters if parameter.requires_grad], "lr": lr}


RESIZE = 256 / 224  # the short side before a crop over the side after it, as in ImageNet's evaluation
PRECISIONS = ("auto", "float32", "bfloat16")
DECAYS = ("cosine", "linear")
COMPILE_MODES = ("default", "reduce-overhead")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rates as a function of the step, so that a resumed training needs no state of a scheduler.

    Rates are multiplied by ``gamma`` every ``step`` epochs or after each milestone. Or they decay with every step, by a
    half ``cosine`` (Loshchilov and Hutter, SGDR, ICLR 2017, eq. 5, without restarts) or ``linear``, to 0 at the end.
    """

    step: int | None = None
    """The number of epochs between two changes of the learning rates; null without `milestones`: constant rates. Range:
    at least 1. Example: 5.
    """
    milestones: tuple[int, ...] = ()
    """The epochs after which the rates change, instead of `step`. Range: epochs in rising order. Example: [10, 15]."""
    gamma: float = 0.5
    """The factor of each change. Range: more than 0, at most 1."""
    decay: str | None = None
    """The decay of the learning rates with every step, to 0, instead of `step` and `milestones`; null: none."""

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
            mistakes.append(f"schedule.gamma must be in (0, 1]; it is {self.gamma}.")
        if self.decay is not None and self.decay not in DECAYS:
            mistakes.append(f"schedule.decay must be null or one of {', '.join(DECAYS)}; it is {self.decay!r}.")
        if self.decay is not None and (self.step is not None or self.milestones):
            mistakes.append(
                f"schedule.decay is {self.decay}, and schedule.step or schedule.milestones change the rates too; give "
                "one of them and leave the others null or empty."
            )
        raise_if_any(mistakes)

    def changes(self, epochs: int) -> tuple[int, ...]:
        """Return the epochs, among the first ``epochs``, after which the learning rates change."""
        return self.milestones if self.step is None else tuple(range(self.step, epochs, self.step))

    def rate(self, lr: float, *, epoch: int, step: int, steps: int, epochs: int) -> float:
        """Return the learning rate of a step, counted from 0, of the ``steps`` of ``epoch``, for the rate ``lr``."""
        for change in self.changes(epochs):
            if change < epoch:
                lr *= self.gamma
        if self.decay is None:
            return lr
        share = min(1.0, ((epoch - 1) * steps + step) / (epochs * steps))
        return lr * ((1 + math.cos(math.pi * share)) / 2 if self.decay == "cosine" else 1 - share)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The settings of one training.

    ``sampler`` is a row of ``BATCH_SAMPLERS`` or the import path of a user-defined class, imported when it is used.

    During ``warmup_epochs`` only the head and the proxies are trained.

    With ``ema`` > 0 the network that is validated and kept has exponential moving averages of the weights, with this
    decay (:mod:`trainables.training.averages`).

    Evaluation resizes images as training does, and takes the centre crop.
    """

    epochs: int = 8
    """The epochs of a training. Range: at least 1."""
    batch_size: int = 120
    """The images of a batch. Range: at least 1."""
    sampler: str = "balanced"
    """The choice of a batch's images, or the import path of your own."""
    images_per_class: int = 5
    """The images of each class in a batch, for samplers that balance classes. Range: at least 1."""
    image_size: int = 32
    """The side, in pixels, of the square that the network sees. Range: at least 1."""
    resize_size: int | None = None
    """The short side of an image before it is cropped; null: that of timm for its networks, else 256 for 224, and in
    proportion. Range: at least image_size. Example: 48.
    """
    resize_square: bool = False
    """True resizes images to `resize_size` on both sides, as for papers that state "256 × 256"; otherwise the aspect
    ratio is kept, and the crop omits the ends of long images.
    """
    augment: str = "crop_flip"
    """The random changes of training images: `crop` is a random crop, `crop_flip` also mirrors half of them,
    `resized_crop_flip` crops from the whole image and resizes then, `none` takes the centre, as validation and test do.
    """
    views: int = 1
    """The fixed views of a training image on which a frozen backbone's features are computed: the centre crop, and
    others drawn once with `augment`. Range: at least 1.
    """
    optimizer: str = "adamw"
    """The optimizer."""
    lr: float = 1e-3
    """The learning rate. Range: more than 0."""
    head_lr: float | None = None
    """The learning rate of the layers behind the backbone; null: `lr`. Range: more than 0. Example: 1e-3."""
    proxy_lr: float | None = None
    """The learning rate of a loss's proxies; null: that of its paper. Range: more than 0. Example: 1e-2."""
    weight_decay: float = 1e-4
    """The decoupled weight decay. Range: at least 0."""
    schedule: Schedule = field(default_factory=Schedule)
    """The steps of the learning rates."""
    warmup_epochs: int = 0
    """The first epochs, which train only the embedding layer and the proxies; the schedule counts them. Range: at least
    0, at most epochs.
    """
    ema: float = 0.0
    """The decay of exponential moving averages of the weights, with which the network is validated and kept; 0: none.
    Range: at least 0, less than 1. Example: 0.99.
    """
    compile: str | None = None
    """The mode of `torch.compile` for the network's training steps, compiled in the first epoch of a process;
    `reduce-overhead` also records CUDA graphs on a GPU. null: not compiled. Example: default.
    """
    clip_grad: float | None = 10.0
    """The bound of each gradient entry, as in Proxy-Anchor's code; null: unbounded. Range: more than 0."""
    precision: str = "auto"
    """The precision of training; `auto` is bfloat16 on a GPU that computes in it (from Ampere on) and float32
    elsewhere. The test is always in float32.
    """
    deterministic: bool = False
    """True makes trainings on a GPU reproducible bit for bit on GPUs of one model, by PyTorch's deterministic
    algorithms, which are slower; on a CPU they always are.
    """
    cross_batch_memory: float = 0.0
    """The newest embeddings of earlier batches with which a loss of pairs compares each batch, as a share of the
    training images; 0: none. Range: at least 0, at most 1. Example: 0.5.
    """
    memory_warmup_epochs: int = 1
    """The first epochs, which do without that memory. Range: at least 0."""

    def __post_init__(self) -> None:
        mistakes = BATCH_SAMPLERS.problems("sampler", self.sampler)
        tables: dict[str, Iterable[str]] = {
            "augment": AUGMENTATIONS,
            "optimizer": OPTIMIZERS,
            "precision": PRECISIONS,
        }
        for name, table in tables.items():
            if getattr(self, name) not in table:
                mistakes.append(
                    f"{name} must be one of {', '.join(table)}; it is "
                    f"{getattr(self, name)!r}{suggestion(getattr(self, name), table)}."
                )
        for name in ("epochs", "batch_size", "images_per_class", "image_size", "views"):
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
            mistakes.append(f"warmup_epochs must be between 0 and epochs ({self.epochs}); it is {self.warmup_epochs}.")
        if self.compile is not None and self.compile not in COMPILE_MODES:
            mistakes.append(
                f"compile must be null or one of {', '.join(COMPILE_MODES)}; it is {self.compile!r}"
                f"{suggestion(self.compile, COMPILE_MODES)}."
            )
        if not 0 <= self.ema < 1:
            mistakes.append(f"ema must be a decay in [0, 1), such as 0.999, or 0 for no averages; it is {self.ema}.")
        if not 0 <= self.cross_batch_memory <= 1:
            mistakes.append(
                "cross_batch_memory must be a share of the training images, from 0 for no memory to 1; it is "
                f"{self.cross_batch_memory}."
            )
        if self.memory_warmup_epochs < 0:
            mistakes.append(f"memory_warmup_epochs must be at least 0; it is {self.memory_warmup_epochs}.")
        if self.cross_batch_memory and self.memory_warmup_epochs >= self.epochs:
            mistakes.append(
                f"memory_warmup_epochs must be less than epochs ({self.epochs}), or the cross_batch_memory is never "
                f"used; it is {self.memory_warmup_epochs}."
            )
        raise_if_any(mistakes)

    @property
    def embedding_batch(self) -> int:
        """Return the batch size for embedding; without gradients there is memory for more images than in training."""
        return 2 * self.batch_size

    @property
    def frame(self) -> Frame:
        """Return the resize and crop of images for the network."""
        short_side = self.resize_size or round(self.image_size * RESIZE)
        return Frame(side=self.image_size, short_side=short_side, square=self.resize_square)
