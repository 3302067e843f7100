"""Contract of any part: find its kind and run its checks; and the contract of a user-defined training."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from spaces.contract import Check, CheckResult, ends_problem
from spaces.contract.check_data import BackboneContract, DatasetContract, MetricContract, SamplerContract
from spaces.contract.check_loss import LossContract
from spaces.losses import space_of_trainable
from spaces.space import Space
from trainables.common.errors import InvalidInput, counted, raise_if_any, suggestion, without_password
from trainables.common.part_tables import is_own, load_part
from trainables.common.rules import OneOf
from trainables.common.vectors import unit
from trainables.data import DATASETS, Dataset
from trainables.data.batch_samplers import BATCH_SAMPLERS, BatchSampler
from trainables.data.store.store_spec import StoreSpec
from trainables.inference.model_files import read_model
from trainables.losses import LIBRARY, LOSSES
from trainables.losses.loss import Loss
from trainables.metrics import METRICS, unknown_metrics
from trainables.models import ModelConfig
from trainables.models.backbones import BACKBONES, LIBRARIES, Backbone
from trainables.training.own import OwnTraining, own_model_of
from trainables.training.spec import EpochRecord, TrialSpec
from trainables.training.trainable import Trainable, has_predictor, trainable_class
from trainables.training.training_config import TrainingConfig

TABLES: Mapping[str, Mapping[str, Any]] = {
    "loss": LOSSES,
    "dataset": DATASETS,
    "backbone": BACKBONES,
    "sampler": BATCH_SAMPLERS,
}
OWN = {"trainable": Trainable, "loss": Loss, "dataset": Dataset, "sampler": BatchSampler}


def kind_of(name: str) -> str:
    """Return the kind of a part by its name or import path: loss, dataset, backbone, sampler, metric or trainable."""
    if name.partition(":")[0] in LIBRARIES:
        return "backbone"
    if name.startswith(f"{LIBRARY}."):
        return "loss"
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
    if isinstance(part, type) and issubclass(part, nn.Module) and len(signature(part.forward).parameters) == 3:
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


def outcome_of(what: str, check: Check) -> CheckResult:
    """Run the check of ``what``. An exception is a failed check, and the state of random generators is restored."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            sentence = check()
    except InvalidInput as error:
        sentence = " ".join(error.sentences)
    except Exception as error:  # a user's part may raise anything
        sentence = without_password(f"It raises {type(error).__name__}: {error}.")
    return CheckResult(what, "failed" if sentence else "ok", sentence)


class Contract(Protocol):
    """The checks of a part, which was loaded to make this object."""

    def checks(self) -> Mapping[str, Check]:
        """Return the checks by what they require, in the order in which they are run."""


def outcomes(load: Callable[..., Contract], *part: Any) -> Iterator[CheckResult]:
    """Load a ``part``, then run the checks of its contract. Nothing is raised."""
    checks: dict[str, Check] = {}

    def can_be_loaded() -> str:
        checks.update(load(*part).checks())
        return ""

    yield outcome_of("It can be loaded.", can_be_loaded)
    for what, check in checks.items():
        yield outcome_of(what, check)


def check_part(
    name: str, options: Mapping[str, Any] | None = None, *, image_size: int | None = None
) -> Iterator[CheckResult]:
    """Check that a part keeps the contract of its kind.

    Args:
        name: name of a built-in part, or an import path.
        options: a data set's options, as in a search file; for a training, those of its data set with its ``name``.
        image_size: side of a backbone's images in pixels; by default that of its weights' evaluation, or 224.
    """
    with TemporaryDirectory(prefix="holdout-check-") as folder:
        contracts: dict[str, Callable[[], Contract]] = {
            "loss": lambda: LossContract(name),
            "dataset": lambda: DatasetContract(name, options),
            "backbone": lambda: BackboneContract(name, image_size),
            "sampler": lambda: SamplerContract(name),
            "metric": lambda: MetricContract(name),
            "trainable": lambda: TrainableContract(name, options or {}, Path(folder)),
        }
        yield from outcomes(lambda: contracts[kind_of(name)]())


# Trainings, with real ones of two epochs.

EPOCHS = 2
MOST_CLASSES = 12
"""Classes that the contract uses, the first of a data set."""

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class DrawnFeatures(Dataset):
    """Classes of drawn vectors, for a training that is checked without a data set."""

    summary: ClassVar[str] = "drawn vectors"
    publisher: ClassVar[str] = "none"
    layout: ClassVar[str] = ""

    def classes(self) -> Mapping[str, tuple[str, ...]]:
        return {f"class {label}": tuple(f"{label}/{row}" for row in range(8)) for label in range(MOST_CLASSES)}

    def identity(self) -> str:
        return "drawn features"

    def stamp(self, key: str) -> str:
        return key

    def features(self) -> int:
        return 16

    def read(self, key: str) -> np.ndarray:
        label, row = map(int, key.split("/"))
        centre = np.random.default_rng(label).normal(size=16)
        return (centre + np.random.default_rng((label, row)).normal(size=16)).astype(np.float32)


class TrainableContract:
    """The checks of a training on the data set of ``options``, as in a search file, or on drawn vectors."""

    def __init__(self, path: str, options: Mapping[str, Any], folder: Path) -> None:
        self._path, self._folder = path, folder
        self._space: Space = space_of_trainable(path)
        self._own = trainable_class(path)
        self._on = "" if options else ", on drawn vectors of 16 numbers (--set name=DATA_SET: on its items)"
        dataset = _dataset(dict(options))
        names = tuple(islice(dataset.classes(), MOST_CLASSES))
        train = names[: -(-2 * len(names) // 3)]
        self._spec = TrialSpec(
            trainable=path,
            loss=path,
            hyperparameters={name: entry.default for name, entry in self._space.items()},
            model=ModelConfig(),
            training=TrainingConfig(epochs=EPOCHS),
            images=StoreSpec(dataset=dataset, class_names=names, short_side=256, cache=str(folder / "cache")),
            train_classes=train,
            validation_classes=names[len(train) :],
            metrics=("map_at_r", "recall_at_1"),
            objective="map_at_r",
            seed=1,
            directory="",
        )
        self._first: list[EpochRecord] = []

    def checks(self) -> Mapping[str, Check]:
        return {
            f"It trains two epochs with its defaults{self._on}.": self._default_problem,
            "The same seed and items give the same numbers, within its tolerance.": self._again_problem,
            "Saved and loaded, it continues with the same numbers.": self._resume_problem,
            "Its saved model embeds an item as the trained one did, whatever the other items are.": self._kept_problem,
            "A predictor gives the embeddings of the saved training.": self._predictor_problem,
            "Both ends of every range and every choice can be set up.": partial(ends_problem, self._space, self._begin),
        }

    @contextmanager
    def _training(self, name: str, params: Mapping[str, Any] = MappingProxyType({})) -> Iterator[OwnTraining]:
        changed = {**self._spec.hyperparameters, **params}
        training = OwnTraining(replace(self._spec, hyperparameters=changed, directory=str(self._folder / name)), CPU)
        try:
            yield training
            training.wait_for_checkpoints()
        finally:
            training.end()

    def _default_problem(self) -> str:
        with self._training("default") as training:
            self._first = [training.run_epoch() for _ in range(EPOCHS)]
        return ""

    def _again_problem(self) -> str:
        with self._training("again") as training:
            return self._difference([training.run_epoch() for _ in range(EPOCHS)])

    def _resume_problem(self) -> str:
        with self._training("resumed") as training:
            training.run_epoch()
        with self._training("resumed") as training:
            training.run_epoch()
            return self._difference(training.records)

    def _difference(self, records: list[EpochRecord]) -> str:
        """Return a sentence on the first number that differs from the first training's."""
        for before, after in zip(self._first, records, strict=True):
            for name, number in _numbers(before).items():
                found = _numbers(after).get(name)
                if found != number and (found is None or number is None or abs(found - number) > self._own.tolerance):
                    return (
                        f"In epoch {before['epoch']} {name} was {number} and is {found}; draw random numbers from the "
                        f"seed, save all that training needs, or state a tolerance (it is {self._own.tolerance:g})."
                    )
        return ""

    @property
    def _best(self) -> Path:
        return self._folder / "default" / "attempt-1" / "best.safetensors"

    def _kept_problem(self) -> str:
        return OwnTraining.kept_problem(self._spec, self._best, CPU) or ""

    def _predictor_problem(self) -> str:
        if not has_predictor(self._own):
            return ""
        model = own_model_of(read_model(str(self._best)), device=CPU, trust_code=True)
        images = replace(self._spec.images, class_names=self._spec.validation_classes)
        view, tested_ND = OwnTraining.tested(self._spec, self._best, images, CPU)
        largest = (torch.from_numpy(model.embed(view.items)) - unit(tested_ND)).abs().max().item()
        if largest > max(self._own.tolerance, 1e-4):
            return f"It differs by {largest:g} from embed after load; return the same numbers, in the items' order."
        return ""

    def _begin(self, params: dict[str, Any]) -> None:
        with self._training("ends", params):
            pass


def _numbers(record: EpochRecord) -> dict[str, float | None]:
    return {**({"loss": record["loss"]} if "loss" in record else {}), **record.get("reported", {}), **record["metrics"]}


def _dataset(options: dict[str, Any]) -> Dataset:
    name = options.pop("name", None)
    if name is None:
        raise_if_any([f"--set {key}: name a data set, too, by --set name=…." for key in options])
        return DrawnFeatures()
    raise_if_any(OneOf(DATASETS, own=True).mistakes("name", name))
    dataset: Dataset = DATASETS[name](**options)
    if len(dataset.classes()) < 4:
        raise InvalidInput(f"{name} has {counted(len(dataset.classes()), 'class', 'classes')}; the contract needs 4.")
    return dataset
