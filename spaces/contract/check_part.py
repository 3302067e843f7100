"""Contract of any part: find its kind and run its checks."""

from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch.nn import Module

from spaces.contract.check_data import DatasetContract, SamplerContract
from spaces.contract.check_loss import LossContract
from spaces.contract.check_model import BackboneContract, MetricContract
from spaces.contract.check_trainable import TrainableContract
from spaces.contract.outcome import CheckOutcome, Contract, outcomes
from trainables.data import DATASETS, Dataset
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.data.samplers import BatchSampler
from trainables.errors import InvalidInput, suggestion
from trainables.losses import LOSSES
from trainables.losses.base import Loss
from trainables.metrics.table import METRICS, unknown_metrics
from trainables.models.backbones import BACKBONES, LIBRARIES, Backbone
from trainables.parts import is_own, load_part
from trainables.training.trainable import Trainable

TABLES: Mapping[str, Mapping[str, Any]] = {
    "loss": LOSSES,
    "dataset": DATASETS,
    "backbone": BACKBONES,
    "sampler": BATCH_SAMPLERS,
}
OWN = {"trainable": Trainable, "loss": Loss, "dataset": Dataset, "sampler": BatchSampler}


def kind_of(name: str) -> str:
    """Return the kind of a part, given by name or import path: loss, dataset, backbone, sampler, metric or trainable.

    Raises:
        InvalidInput: there is no such part, or it is of no known kind.
    """
    if name.partition(":")[0] in LIBRARIES:
        return "backbone"
    if is_own(name):
        return _kind_of_own(name)
    for kind, table in TABLES.items():
        if name in table:
            return kind
    if not unknown_metrics([name]):
        return "metric"
    known = [*(row for table in TABLES.values() for row in table), *METRICS]
    raise InvalidInput(
        f"There is no part {name!r}{suggestion(name, known)}: name a built-in part, or give the import path of your "
        "own, such as mylab.losses:CircleLoss."
    )


def _kind_of_own(path: str) -> str:
    part: Any = load_part(path)
    for kind, base in OWN.items():
        if isinstance(part, type) and issubclass(part, base):
            return kind
    if isinstance(part, type) and issubclass(part, Module) and len(signature(part.forward).parameters) == 3:
        return "loss"  # self, embeddings and labels: its check says what is missing
    if isinstance(part, Backbone) or hasattr(part, "features"):
        return "backbone"
    if callable(part) and not isinstance(part, type):
        return "metric"
    raise InvalidInput(
        f"The part {path!r} is neither a loss, a data set, a batch sampler nor a training (a class that derives from "
        "Loss, Dataset, BatchSampler or holdout.Trainable), nor a backbone (with an attribute features), nor a metric "
        f"(a function); it is {part!r:.100}."
    )


def check_part(
    name: str, options: Mapping[str, Any] | None = None, *, kind: str | None = None, image_size: int = 224
) -> Iterator[CheckOutcome]:
    """Check that a part keeps the contract of its kind.

    Args:
        name: name of a built-in part, or an import path.
        options: a data set's options, as in a search file; for a training, those of its data set with its ``name``.
        kind: one of those of :func:`kind_of`, which finds it by default.
        image_size: size of a backbone's images in pixels.
    """
    with TemporaryDirectory(prefix="holdout-check-") as folder:

        def load() -> Contract:
            contracts: dict[str, Callable[[], Contract]] = {
                "loss": lambda: LossContract(name),
                "dataset": lambda: DatasetContract(name, options),
                "backbone": lambda: BackboneContract(name, image_size),
                "sampler": lambda: SamplerContract(name),
                "metric": lambda: MetricContract(name),
                "trainable": lambda: TrainableContract(name, options or {}, Path(folder)),
            }
            return contracts[kind or kind_of(name)]()

        yield from outcomes(load)
