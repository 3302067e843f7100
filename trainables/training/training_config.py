"""The ``training`` section of a search file, and the table of optimizers."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from trainables.common.errors import Mistake, raise_if_any
from trainables.common.part_tables import PartRow, PartTable
from trainables.common.rules import Bounds, Count, NotNegative, OneOf, Positive, rule_mistakes
from trainables.data import AUGMENTATIONS, Frame
from trainables.data.batch_samplers import BATCH_SAMPLERS

if TYPE_CHECKING:
    from torch.optim import Optimizer


_ROWS = {
    "adamw": PartRow(path="trainables.training.steps:AdamW"),  # Multi Proxy Anchor, the thesis
    "adam": PartRow(path="trainables.training.steps:Adam"),  # PNP, Sampling Wisely
}

OPTIMIZERS: "PartTable[type[Optimizer], PartRow]" = PartTable("optimizer", _ROWS)


RESIZE = 256 / 224  # the short side before a crop over the side after it, as in ImageNet's evaluation


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rates as a function of the step, so that a resumed training needs no state of a scheduler.

    Rates are multiplied by ``gamma`` every ``step`` epochs or after each milestone. Or they decay with every step, by a
    half ``cosine`` (Loshchilov and Hutter, SGDR, ICLR 2017, eq. 5, without restarts) or ``linear``, to 0 at the end.
    """

    step: Annotated[int | None, Bounds(ge=1)] = None
    """The number of epochs between two changes of the learning rates; null without `milestones`: constant rates.
    Example: 5.
    """
    milestones: Annotated[tuple[int, ...], Bounds(ge=1)] = ()
    """The epochs after which the rates change, in rising order, instead of `step`. Example: [10, 15]."""
    gamma: Annotated[float, Bounds(gt=0, le=1)] = 0.5
    """The factor of each change."""
    decay: Annotated[str | None, OneOf(("cosine", "linear"), ("null",))] = None
    """The decay of the learning rates with every step, to 0, instead of `step` and `milestones`; null: none."""

    def __post_init__(self) -> None:
        mistakes, listed = rule_mistakes(self), list(self.milestones)
        if listed != sorted({*listed}):
            rule = "must be epochs, each later than the one before"
            mistakes.append(Mistake("milestones", rule, f"they are {listed}"))
        if self.step is not None and listed:
            text = f"is {self.step} and milestones are {listed}"
            fix = "give one of them and leave the other null or empty"
            mistakes.append(Mistake("step", text, fix, ("step", "milestones")))
        if self.decay is not None and (self.step is not None or listed):
            text = f"is {self.decay}, and step or milestones change the rates too"
            fix = "give one of them and leave the others null or empty"
            mistakes.append(Mistake("decay", text, fix, ("decay", "step", "milestones")))
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
    """The settings of one training. Evaluation resizes images as training does, and takes the centre crop."""

    epochs: Count = 8
    """The epochs of a training."""
    batch_size: Count = 120
    """The images of a batch. If not given, the default is lowered to what the training classes fill."""
    sampler: Annotated[str, OneOf(BATCH_SAMPLERS, own=True)] = "balanced"
    """The choice of a batch's images, or the import path of your own."""
    images_per_class: Count = 5
    """The images of each class in a batch, for samplers that balance classes."""
    image_size: Count = 32
    """The side, in pixels, of the square that the network sees."""
    resize_size: int | None = None
    """The short side of an image before it is cropped, at least `image_size`; null: that of timm for its networks, else
    256 for 224, and in proportion. Example: 48.
    """
    resize_square: bool = False
    """True resizes images to `resize_size` on both sides, as for papers that state "256 × 256"; otherwise the aspect
    ratio is kept, and the crop omits the ends of long images.
    """
    augment: Annotated[str, OneOf(AUGMENTATIONS)] = "crop_flip"
    """The random changes of training images: `crop` is a random crop, `crop_flip` also mirrors half of them,
    `resized_crop_flip` crops from the whole image and resizes then, `none` takes the centre, as validation and test do.
    """
    optimizer: Annotated[str, OneOf(OPTIMIZERS)] = "adamw"
    """The optimizer."""
    lr: Positive = 1e-3
    """The learning rate."""
    head_lr: Annotated[float | None, Bounds(gt=0)] = None
    """The learning rate of the layers behind the backbone; null: `lr`. Example: 1e-3."""
    layer_decay: Annotated[float, Bounds(gt=0, le=1)] = 1.0
    """The learning rate of each block of the backbone, in parts of that of the next one; what is behind the last has
    `lr`.
    """
    proxy_lr: Annotated[float | None, Bounds(gt=0)] = None
    """The learning rate of a loss's proxies; null: that of its paper. Example: 1e-2."""
    weight_decay: NotNegative = 1e-4
    """The decoupled weight decay."""
    schedule: Schedule = field(default_factory=Schedule)
    """The steps of the learning rates."""
    warmup_epochs: Annotated[int, Bounds(ge=0)] = 0
    """The first epochs, at most `epochs`, which train only the embedding layer and the proxies; the schedule counts
    them.
    """
    compile: Annotated[str | None, OneOf(("auto",), ("null",))] = "auto"
    """How training steps are computed. `auto`: on a GPU, small steps are captured as CUDA graphs and others compiled
    where that saves time, except if `deterministic`; plain elsewhere. null: plain.
    """
    clip_grad: Annotated[float | None, Bounds(gt=0)] = 10.0
    """The bound of each gradient entry, as in Proxy-Anchor's code; null: unbounded."""
    precision: Annotated[str, OneOf(("auto", "float32", "bfloat16"))] = "auto"
    """The precision of training; `auto` is bfloat16 on a GPU that computes in it (from Ampere on) and float32
    elsewhere. The test is always in float32.
    """
    deterministic: bool = False
    """True makes trainings on a GPU reproducible bit for bit on GPUs of one model, by PyTorch's deterministic
    algorithms, which are slower; on a CPU they always are.
    """

    def __post_init__(self) -> None:
        mistakes = rule_mistakes(self)
        if self.resize_size is not None and self.resize_size < self.image_size:
            rule = f"must be at least image_size ({self.image_size}), or null"
            keys = ("resize_size", "image_size")
            mistakes.append(Mistake("resize_size", rule, f"it is {self.resize_size}", keys))
        if self.warmup_epochs > self.epochs:
            rule, keys = f"must be at most epochs ({self.epochs})", ("warmup_epochs", "epochs")
            mistakes.append(Mistake("warmup_epochs", rule, f"it is {self.warmup_epochs}", keys))
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
