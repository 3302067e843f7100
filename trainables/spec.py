"""The specification of one training, and the record of one epoch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NotRequired, TypedDict

from trainables.data.split import left_out
from trainables.data.store.spec import StoreSpec
from trainables.models.config import ModelConfig
from trainables.training.config import TrainingConfig

# What is kept of an epoch.


class DeviceMemory(TypedDict):
    """Bytes of a GPU: what PyTorch held at most, and what there is."""

    peak: int
    total: int


class EpochRecord(TypedDict):
    """What one epoch came to. ``start`` and ``end`` are seconds since 1970, ``metrics`` are of the validation.

    ``batches`` is the number of training steps, and ``used`` how many pairs, triplets or samples the loss took of them
    (:class:`trainables.losses.base.Used`); a loss that does not say it has none.

    In a cross-validation ``fold`` (from 1) says whose epoch it is. On a GPU ``memory`` is what the process has taken.
    ``together`` says how many trainings a stack had, this one counted, whose steps were taken at once.
    """

    epoch: int
    loss: float
    batches: int
    metrics: dict[str, float]
    start: float
    end: float
    checkpoint: str | None
    used: NotRequired[dict[str, int]]
    fold: NotRequired[int]
    memory: NotRequired[DeviceMemory]
    together: NotRequired[int]


# Everything that one training run is: a value that can be sent to a worker, and its digest.


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One training run.

    ``loss`` is a row of ``LOSSES`` or the import path of one's own. The worker that trains imports what an import path
    names here, in ``model``, ``training`` or ``metrics``.
    ``images`` are those of the training half; ``train_classes`` are learned from, every ``merge`` consecutive ones as
    one, and ``validation_classes`` (none for a final training on all classes) are what each epoch is scored on, by
    ``metrics``. The best epoch is the first one that maximises ``objective``. ``directory`` receives the attempts'
    checkpoints. With ``folds`` there is a training for each, in which its classes validate and the other
    ``train_classes`` are learned from. With ``gallery_seed`` the half of the training images that it draws stands in
    the validation's gallery too. ``origin`` says whose training this is, in JSON's types, for its checkpoints.
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
    folds: tuple[tuple[str, ...], ...] = ()
    gallery_seed: int | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __deepcopy__(self, memo: dict[int, Any]) -> "TrialSpec":
        """Itself: nothing of it changes, and Ray Tune copies what a trial is given several times, with all classes."""
        return self

    @property
    def epochs(self) -> int:
        """The epochs of all folds together."""
        return self.training.epochs * max(1, len(self.folds))

    def of_fold(self, fold: int) -> "TrialSpec":
        """The training of one fold, counted from 1."""
        validation = self.folds[fold - 1]
        return replace(
            self,
            folds=(),
            train_classes=left_out(self.train_classes, validation),
            validation_classes=validation,
            seed=derived_seed(self.seed, "fold", fold),
            directory=f"{self.directory}/fold-{fold}",
        )

    @property
    def digest(self) -> str:
        """SHA-256 of what determines the result; where files lie and whose it is are left out."""
        left_out = ("images", "directory", "origin")
        content = {name: value for name, value in asdict(self).items() if name not in left_out}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def derived_seed(*parts: str | int) -> int:
    """A seed in [0, 2³¹) that depends on every part: the first four bytes of SHA-256 of ``part/part/…``."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
