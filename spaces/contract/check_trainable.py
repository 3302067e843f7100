"""Contract of a user-defined training, tested with real trainings of two epochs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from spaces.contract import Check
from spaces.losses import space_of_trainable
from spaces.space import Space, Value
from trainables.common.errors import InvalidInput, counted, raise_if_any
from trainables.common.rules import OneOf
from trainables.common.vectors import unit
from trainables.data import DATASETS, Dataset
from trainables.data.store.store_spec import StoreSpec
from trainables.inference.model_files import read_model
from trainables.models import ModelConfig
from trainables.training.own import OwnTraining, own_model_of
from trainables.training.spec import EpochRecord, TrialSpec
from trainables.training.trainable import has_predictor, trainable_class
from trainables.training.training_config import TrainingConfig

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
    """The checks of the training at an import path, in a ``folder`` for its checkpoints.

    ``options`` are the section ``dataset`` of a search file; by default drawn vectors are trained on.
    """

    def __init__(self, path: str, options: Mapping[str, Any], folder: Path) -> None:
        self._path, self._folder = path, folder
        self._space: Space = space_of_trainable(path)
        self._own = trainable_class(path)
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
            "It trains two epochs with its defaults.": self._default_problem,
            "The same seed and items give the same numbers, within its tolerance.": self._again_problem,
            "Saved and loaded, it continues with the same numbers.": self._resume_problem,
            "Its saved model embeds an item as the trained one did, whatever the other items are.": self._kept_problem,
            "A predictor gives the embeddings of the saved training.": self._predictor_problem,
            "Both ends of every range and every choice can be set up.": self._ends_problem,
        }

    @contextmanager
    def _training(self, name: str, **params: Value) -> Iterator[OwnTraining]:
        spec = replace(
            self._spec, hyperparameters={**self._spec.hyperparameters, **params}, directory=str(self._folder / name)
        )
        training = OwnTraining(spec, CPU)
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

    def _allowed(self, embeddings_ND: Tensor) -> float:
        """Return the largest difference that rounding may cause."""
        return max(self._own.tolerance, 1e-4) * max(1.0, embeddings_ND.abs().max().item())

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
        unit_ND = unit(tested_ND)
        largest = (torch.from_numpy(model.embed(view.items)) - unit_ND).abs().max().item()
        if largest > self._allowed(unit_ND):
            return f"It differs by {largest:g} from embed after load; return the same numbers, in the items' order."
        return ""

    def _ends_problem(self) -> str:
        for name, entry in self._space.items():
            for number, value in enumerate(entry.ends):
                try:
                    with self._training(f"{name}-{number}", **{name: value}):
                        pass
                except Exception as error:
                    return f"{name} = {value!r} is in its space and raises {type(error).__name__}: {error}."
        return ""


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
