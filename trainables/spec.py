"""Everything that one training run is: a value that can be sent to a worker, and its digest."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainables.data.recipe import StoreRecipe
from trainables.models import ModelConfig
from trainables.training_config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One training run.

    ``images`` are those of the training half; ``train_classes`` are learned from, every ``merge`` consecutive ones as
    one, and ``validation_classes`` (none for a final training on all classes) are what each epoch is scored on, by
    ``metrics``. The best epoch is the first one that maximises ``objective``. ``directory`` receives the attempts'
    checkpoints.
    """

    loss: str
    hyperparameters: Mapping[str, Any]
    model: ModelConfig
    training: TrainingConfig
    images: StoreRecipe
    train_classes: tuple[str, ...]
    validation_classes: tuple[str, ...]
    metrics: tuple[str, ...]
    objective: str
    seed: int
    directory: str
    merge: int = 1

    @property
    def digest(self) -> str:
        """SHA-256 of what determines the result; places on disk are left out."""
        content = {name: value for name, value in asdict(self).items() if name not in ("images", "directory")}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def derived_seed(*parts: str | int) -> int:
    """A seed in [0, 2³¹) that depends on every part: the first four bytes of SHA-256 of ``part/part/…``."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
