"""The specification of one training, and the record of one epoch."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NotRequired, TypedDict

from trainables.common.files import json_digest
from trainables.data.split import left_out
from trainables.data.store.store_spec import StoreSpec
from trainables.models.config import ModelConfig
from trainables.training.training_config import TrainingConfig


def defined(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return ``values`` with None for what is undefined, NaN or infinity, which JSON does not have."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


class DeviceMemory(TypedDict):
    """GPU memory in bytes: the peak held by PyTorch, and the device's total."""

    peak: int
    total: int


class Trained(TypedDict):
    """The part of a record that training gives.

    ``batches`` is the number of steps. A user-defined training counts an epoch as one step unless it says otherwise,
    and may have ``reported`` numbers, and no ``loss``. ``used`` counts the pairs, triplets or samples that the loss
    summed (:class:`trainables.losses.loss.Used`), if it reports them. ``distinct_proxies`` is set for a loss with
    several proxies a class (:func:`trainables.losses.loss.distinct_proxies`).
    """

    loss: NotRequired[float]
    batches: int
    used: NotRequired[dict[str, int]]
    distinct_proxies: NotRequired[float]
    reported: NotRequired[dict[str, float | None]]


class Validated(TypedDict):
    """The part of a record that a validation gives; ``classes`` in the best epochs so far, if the spec asks for it."""

    metrics: dict[str, float | None]
    classes: NotRequired[dict[str, float]]


class EpochRecord(Trained, Validated):
    """Results of one epoch. ``start`` and ``end`` are in seconds since 1970.

    A metric or reported number that is undefined is None. ``fold`` (from 1) is set in a cross-validation, and
    ``memory`` on a GPU.
    """

    epoch: int
    start: float
    end: float
    checkpoint: str | None
    fold: NotRequired[int]
    memory: NotRequired[DeviceMemory]


@dataclass(frozen=True)
class Epochs:
    """News of a worker: epochs that it has not reported yet; ``finished`` if they end the training."""

    records: Sequence[EpochRecord]
    finished: bool


@dataclass(frozen=True, kw_only=True)
class Failed:
    """News of a worker: its training failed, by ``cause`` (DIVERGED, OUT_OF_MEMORY, CODE_ERROR or LOST) and ``reason``.

    LOST means that the environment failed and the trial may be retried. ``place`` is the file and the line of an error
    that was raised; ``untestable`` means that no model of this training could be tested.
    """

    cause: str
    reason: str
    place: str | None = None
    untestable: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the content for the trial's record, without what is not set."""
        return {name: value for name, value in asdict(self).items() if value or name in ("cause", "reason")}


@dataclass(frozen=True)
class NoSpace:
    """News of a worker: a disk is full, which is no failure of the training; it resumes when there is room."""

    text: str


News = Epochs | Failed | NoSpace


def seconds_of(news: Iterable[News]) -> list[float]:
    """Return the duration of each epoch in ``news``."""
    records = (record for of_step in news if isinstance(of_step, Epochs) for record in of_step.records)
    return [record["end"] - record["start"] for record in records]


EMBED_MS, SIZE_MB = COSTS = ("embed_ms", "size_mb")
"""What a model costs: milliseconds per item in which the validation embeds, and megabytes of its tensors or files."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """Everything that defines one training run.

    Attributes:
        trainable: the import path of a user-defined training, which uses of ``training`` the epochs and of ``model``
            nothing; None for the training of a network of images or features with a loss.
        loss: a row of ``LOSSES``, or the import path of a user-defined loss or training. Import paths, here and in
            ``model``, ``training`` and ``metrics``, are imported by the worker that trains.
        schedule_epochs: the epochs over which the learning rates decay; None for those of ``training``.
        images: the images of the training half.
        train_classes: the classes to learn from, every ``merge`` consecutive ones as one.
        label_noise: the part of their images that is learned under a wrong class, drawn with ``noise_seed``.
        validation_classes: the classes that score each epoch; none in a final training on all classes.
        metrics: what to score.
        costs: those of :data:`COSTS` that are recorded beside the metrics.
        objective: the metric to maximise; the first epoch with its maximum is the best.
        needed: further metrics, without which the training fails as without the objective.
        directory: where the attempts write their checkpoints.
        folds: validation classes of each fold. There is one training per fold; the other ``train_classes`` train.
        gallery_seed: if set, the half of the training images drawn with it joins the validation gallery.
        by_class: record the objective of each validation class too.
        checked: load the first kept model as the test will load it, and compare its embeddings with those in memory.
        origin: the search and trial that it belongs to, in JSON types, recorded in its checkpoints.
    """

    loss: str
    hyperparameters: Mapping[str, Any]
    model: ModelConfig
    training: TrainingConfig
    images: StoreSpec
    train_classes: tuple[str, ...]
    validation_classes: tuple[str, ...]
    metrics: tuple[str, ...]
    objective: str
    seed: int
    directory: str
    merge: int = 1
    label_noise: float = 0.0
    noise_seed: int = 0
    folds: tuple[tuple[str, ...], ...] = ()
    gallery_seed: int | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    trainable: str | None = None
    costs: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    by_class: bool = False
    checked: bool = False
    schedule_epochs: int | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "TrialSpec":
        """Return itself: it is immutable, and Ray Tune copies a trial's arguments, with all classes, several times."""
        return self

    @property
    def epochs(self) -> int:
        """Number of epochs of all folds together."""
        return self.training.epochs * max(1, len(self.folds))

    def of_fold(self, fold: int) -> "TrialSpec":
        """Return the training of one fold, counted from 1."""
        validation = self.folds[fold - 1]
        return replace(
            self,
            folds=(),
            train_classes=left_out(self.train_classes, validation),
            validation_classes=validation,
            seed=derived_seed(self.seed, "fold", fold),
            directory=f"{self.directory}/fold-{fold}",
            checked=self.checked and fold == 1,
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that determines the result; excludes locations, ``origin`` and what is recorded."""
        excluded = ("images", "directory", "origin", "by_class", "checked")
        content = {name: value for name, value in asdict(self).items() if name not in excluded}
        for name in ("trainable", "costs", "needed"):  # digests are those of earlier versions
            if not content[name]:
                del content[name]
        return json_digest(content)


@dataclass(frozen=True, kw_only=True)
class UntrainedSpec:
    """The network whose backbone and pooling are scored as initialised, and the classes that validate them.

    Other attributes are those of a :class:`TrialSpec`.

    Attributes:
        divisions: training and validation classes, one pair for each fold.
        confirming: those of the confirmation, one pair for each half or fold.
        objective: the metric whose value of each class is returned for the confirmation.
        fitted_on: the classes to whose images the whitening for the test is fitted.
        gpu: True if the worker has a GPU for it.
    """

    model: ModelConfig
    training: TrainingConfig
    images: StoreSpec
    divisions: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    confirming: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    objective: str
    fitted_on: tuple[str, ...]
    metrics: tuple[str, ...]
    gpu: bool
    gallery_seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class ValidatedUntrained:
    """The validation of the initial network, ``untrained`` and ``whitened``, as in ``baselines.json``.

    ``network`` is the digest of the backbone, ``loaded`` a sentence on what its file of weights held, ``validation``
    has the metrics, and ``classes`` the objective of each class that validates in the confirmation. ``whitening`` is
    the content of a checkpoint: the layer to ``dimensions`` dimensions behind the backbone, fitted to the classes of
    the test's trainings.
    """

    network: str
    loaded: str | None
    dimensions: int
    validation: dict[str, dict[str, float | None]]
    classes: dict[str, dict[str, float]]
    whitening: bytes


def derived_seed(*parts: str | int) -> int:
    """Return a seed in [0, 2³¹): the first four bytes, shifted right once, of SHA-256 of ``part/part/…``."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
