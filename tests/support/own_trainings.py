"""Trainings of a user's own: one that works on drawn items, and some with a mistake each."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from support.small_training import run
from torch import Tensor

import holdout
from trainables.data.store.store_spec import StoreSpec
from trainables.models import ModelConfig
from trainables.training.spec import EpochRecord, TrialSpec, derived_seed
from trainables.training.training_config import TrainingConfig

CLASSES, EACH = 8, 6


@dataclass(frozen=True, kw_only=True)
class Records(holdout.ItemDataset):
    """Items that are records with their class, a number and an array."""

    summary: ClassVar[str] = "records"

    def classes(self) -> Mapping[str, tuple[str, ...]]:
        return {f"class-{label}": tuple(f"{label}-{number}" for number in range(EACH)) for label in range(CLASSES)}

    def identity(self) -> str:
        return "records"

    def read(self, key: str) -> dict[str, Any]:
        label, number = map(int, key.split("-"))
        generator = np.random.default_rng((label, number))
        return {"key": key, "vector": np.eye(CLASSES)[label % CLASSES] + generator.normal(size=CLASSES)}


class ManyRecords(Records):
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        return {
            f"class-{label:02d}": tuple(f"{label}-{number}" for number in range(EACH)) for label in range(2 * CLASSES)
        }


def vectors(items: Sequence[Mapping[str, Any]]) -> Tensor:
    return torch.tensor(np.array([item["vector"] for item in items]), dtype=torch.float32)


class Scales(holdout.Trainable):
    """Learned weights of the numbers of a vector, with noise from PyTorch's generator."""

    space: ClassVar[Mapping[str, Any]] = {"lr": holdout.Float(0.01, 1.0, log=True, default=0.1)}

    def setup(self, params: Mapping[str, Any], train: holdout.Items, *, seed: int, device: torch.device) -> None:
        self.lr, self.train = params["lr"], train
        self.weights = torch.ones(CLASSES)

    def train_epoch(self) -> Mapping[str, float] | None:
        self.weights += self.lr * torch.randn(CLASSES) + vectors(self.train.items).mean(dim=0)
        return {"loss": self.weights.norm().item(), "largest": self.weights.max().item()}

    def embed(self, items: Any) -> Any:
        return vectors(items) * self.weights

    def save(self, folder: Path) -> None:
        (folder / "in" / "folders").mkdir(parents=True)
        (folder / "in" / "folders" / "weights.json").write_text(json.dumps(self.weights.tolist()))
        (folder / "empty").touch()

    def load(self, folder: Path) -> None:
        assert (folder / "empty").is_file()
        self.weights = torch.tensor(json.loads((folder / "in" / "folders" / "weights.json").read_text()))


def own_spec(folder: Path, path: str, *, epochs: int = 3, validates: Sequence[int] = (3,), **changes: Any) -> TrialSpec:
    """Return a spec that trains on those of the first four classes that do not validate."""
    dataset = Records()
    names = tuple(dataset.classes())[:4]
    validation = tuple(names[number] for number in validates)
    return TrialSpec(
        trainable=path,
        loss=path,
        hyperparameters={"lr": 0.1},
        model=ModelConfig(),
        training=TrainingConfig(epochs=epochs),
        images=StoreSpec(dataset=dataset, class_names=names, short_side=256, cache=str(folder / "cache")),
        train_classes=tuple(name for name in names if name not in validation),
        validation_classes=validation,
        directory=str(folder / "trial"),
        **{"metrics": ("map_at_r",), "objective": "map_at_r", "seed": 7, **changes},
    )


def trained(spec: TrialSpec) -> list[EpochRecord]:
    training = run(spec)
    training.end()
    return list(training.records)


# InvalidInput.


class Incomplete(holdout.Trainable):
    space: ClassVar[Mapping[str, Any]] = {
        "lr": holdout.Float(0.1, 1.0),
        "depth": 3,
        "not a name": holdout.Int(1, 2, default=1),
    }

    def setup(self, params: Mapping[str, Any], train: holdout.Items, *, seed: int, device: torch.device) -> None: ...


class Impossible(Scales):
    space: ClassVar[Mapping[str, Any]] = {
        "lr": holdout.Float(1.0, 0.1, default=0.5),
        "margin": holdout.Float(0.0, 1.0, default=2.0),
        "depth": holdout.Int(1, 10, step=4, default=1),
    }


class Short(Scales):
    def embed(self, items: Any) -> Any:
        return super().embed(items)[:-1]


class NotFinite(Scales):
    def embed(self, items: Any) -> Any:
        return super().embed(items) * torch.nan


class Constant(Scales):
    def embed(self, items: Any) -> Any:
        return super().embed(items[:1]).expand(len(items), -1)


class LossNotFinite(Scales):
    def train_epoch(self) -> Mapping[str, float]:
        return {"loss": float("inf")}


class NoNumbers(Scales):
    def train_epoch(self) -> Mapping[str, float]:
        return {"loss": "low"}  # type: ignore[dict-item]


class SavesNothing(Scales):
    def save(self, folder: Path) -> None: ...


class DoesNotLoad(Scales):
    def load(self, folder: Path) -> None:
        raise KeyError("weights")


class ExitsAfterEpoch(Scales):
    def train_epoch(self) -> Mapping[str, float] | None:
        if os.getcwd() == "/":  # as the first epoch left it
            sys.exit(3)
        os.chdir("/")
        return super().train_epoch()

    def finish(self) -> None:
        sys.exit()


# Functions.


@holdout.trainable(lr=holdout.Float(0.01, 1.0, log=True, default=0.1))
def drawn_scales(params: Mapping[str, Any], train: holdout.Items, report: holdout.Report) -> None:
    weights = torch.ones(CLASSES)
    for epoch in range(report.epochs):
        weights = weights + params["lr"] * torch.randn(CLASSES)
        report(lambda items, weights=weights: vectors(items) * weights, loss=1.0 / (epoch + 1))


@holdout.trainable(lr=holdout.Float(0.01, 1.0, log=True, default=0.1))
def one_report(params: Mapping[str, Any], train: holdout.Items, report: holdout.Report) -> None:
    report(vectors)


@holdout.trainable(lr=holdout.Float(0.01, 1.0, log=True, default=0.1))
def never_the_same(params: Mapping[str, Any], train: holdout.Items, report: holdout.Report) -> None:
    generator = np.random.default_rng()
    while True:
        weights = torch.from_numpy(generator.normal(size=CLASSES)).float()
        report(lambda items, weights=weights: vectors(items) * weights)


@holdout.trainable(lr=holdout.Float(0.01, 1.0, log=True, default=0.1))
def exits_in_function(params: Mapping[str, Any], train: holdout.Items, report: holdout.Report) -> None:
    report(vectors)
    sys.exit(3)


class Unseeded(Scales):
    def train_epoch(self) -> Mapping[str, float] | None:
        self.weights = self.weights + float(np.random.default_rng().normal())
        return {"loss": self.weights.norm().item()}


class Forgets(Scales):
    def load(self, folder: Path) -> None: ...


class PredictsOthers(Scales):
    @classmethod
    def predictor(cls, folder: Path, params: Mapping[str, Any], *, device: torch.device) -> Callable[[Any], Tensor]:
        return lambda items: vectors(items) + 1


class Sorted(Scales):
    def embed(self, items: Any) -> Any:
        return super().embed(sorted(items, key=lambda item: item["key"]))


class Smoothed(Scales):
    def embed(self, items: Any) -> Any:
        whole = super().embed(items)
        return (whole + whole.roll(1, 0) + whole.roll(-1, 0)) / 3


class Centred(Scales):
    def embed(self, items: Any) -> Any:
        whole = super().embed(items)
        return whole - whole.mean(0) if len(whole) > 1 else whole


class PlaceInTheList(Scales):
    """Embeds the noise of each item, smoothed over its neighbours in the list."""

    def embed(self, items: Any) -> Any:
        draws = [np.random.default_rng(list(item["key"].encode())).normal(size=32) for item in items]
        whole = torch.tensor(np.array(draws))
        return sum(whole.roll(shift, 0) for shift in (-1, 0, 1))


class NotAtItsEnd(Scales):
    def setup(self, params: Mapping[str, Any], train: holdout.Items, *, seed: int, device: torch.device) -> None:
        super().setup(params, train, seed=seed, device=device)
        assert params["lr"] < 1.0


class Trade(holdout.Trainable):
    """A training whose quality grows with its weight, up to noise of its seed."""

    space = {"weight": holdout.Float(0.0, 1.0, default=0.9)}  # noqa: RUF012

    def setup(self, params: Any, train: Any, *, seed: int, device: Any) -> None:
        self.weight = float(params["weight"])
        self.quality = self.weight**0.5 + 0.02 * derived_seed(seed) / 2**31

    def train_epoch(self) -> dict[str, float]:
        return {"loss": 1.0}

    def embed(self, items: Any) -> Any:
        return np.array([[self.quality, self.weight, *item["vector"]] for item in items])

    def save(self, folder: Path) -> None:
        (folder / "weight.json").write_text(json.dumps([self.weight, self.quality]))

    def load(self, folder: Path) -> None:
        self.weight, self.quality = json.loads((folder / "weight.json").read_text())


def quality(embeddings_ND: Tensor, labels_N: Tensor) -> float:
    return float(embeddings_ND[0, 0])


def weight(embeddings_ND: Tensor, labels_N: Tensor) -> float:
    return float(embeddings_ND[0, 1])


# Trainings whose saved model is another one.


class Shifted(Scales):
    """What embeds subtracts a centre of the items that it trains on."""

    centre = 0.0

    def train_epoch(self) -> Mapping[str, float] | None:
        self.centre = 3 + vectors(self.train.items).mean().item()
        return super().train_epoch()

    def embed(self, items: Any) -> Any:
        return super().embed(items) - self.centre


class Dropping(Scales):
    def embed(self, items: Any) -> Any:
        return torch.nn.functional.dropout(super().embed(items))


class ForgetsIfAsked(Shifted):
    """What it saves is complete; with the variable ``FORGETS`` it loads a part."""

    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / "centre.json").write_text(json.dumps(self.centre))

    def load(self, folder: Path) -> None:
        super().load(folder)
        if "FORGETS" not in os.environ:
            self.centre = json.loads((folder / "centre.json").read_text())


class FailsOnAllIfAsked(Scales):
    """It does not train on all eight classes of the training half with the variable ``FAILS``."""

    def setup(self, params: Mapping[str, Any], train: holdout.Items, *, seed: int, device: torch.device) -> None:
        super().setup(params, train, seed=seed, device=device)
        assert len(train.class_names) < 8 or "FAILS" not in os.environ, "eight classes"


class CollapsesLater(Scales):
    def embed(self, items: Any) -> Any:
        found = super().embed(items)
        return torch.ones_like(found) if self.epochs_trained > 1 else found

    epochs_trained = 0

    def train_epoch(self) -> Mapping[str, float] | None:
        self.epochs_trained += 1
        return super().train_epoch()
