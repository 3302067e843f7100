"""Tables of real trainings, from which ``make bench-search`` replays searches.

    python -m benchmarks.search.tables IMAGES WEIGHTS WORK [--only TABLE …] [--configurations 200]

IMAGES holds ``omniglot/images`` and ``grocery/images`` (one sub-folder per class), WEIGHTS is a file for timm's
``tf_efficientnet_lite0``, and WORK is a folder for the features and for what is trained so far: an interrupted program
continues where it stopped. A finished table is written to ``benchmarks/tables``.

A table is one loss on one data set. Its configurations are trial 0 and the points that the product's ``qmc`` sampler
proposes after it, in the loss's own space with the learning rates. Each is trained with several seeds on several
divisions of the classes: a linear layer on the features of a frozen network, by the product's own trainings.
Every epoch is scored on the validation classes, and the best one on further classes, the *other* ones, which
are the same in all divisions and decide nothing: they say what a configuration is worth. Only the training half of a
data set is used, as the product divides it; no image of a test class is read.

Legend: N images, F features, P principal components.
"""

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from optuna.distributions import distribution_to_json
from pyarrow import parquet

from benchmarks.json_lines import append_lines, read_lines
from search.study.samplers import Qmc
from spaces.search_space import SearchSpace, search_space
from spaces.space import Params
from trainables.data import DATASETS
from trainables.data.dataset import Dataset
from trainables.data.sets.features import FeatureFile
from trainables.data.split import make_split
from trainables.data.store.spec import StoreSpec
from trainables.files import write_whole
from trainables.models import ModelConfig
from trainables.models.backbones import FEATURES
from trainables.spec import EpochRecord, TrialSpec, derived_seed
from trainables.training.config import TrainingConfig
from trainables.training.epoch_training import Diverged
from trainables.training.inputs import Inputs
from trainables.training.train import Training
from trainables.training.validation import Validation

TABLES = Path(__file__).parent.parent / "tables"
OBJECTIVE = "map_at_r"
BACKBONE, COMPONENTS, DIMENSIONS = "timm:tf_efficientnet_lite0", 256, 64
"""The network, the principal components of its features that the layer sees, and the dimensions of its embeddings."""
EPOCHS, BATCH, IMAGES_PER_CLASS = 8, 100, 30
CONFIGURATIONS, DIVISIONS, SEEDS = 200, 3, 2
"""Each quarter of the training half but the last, which holds the other classes, validates in one of the divisions."""
RATES = {
    "lr": {"low": 1e-4, "high": 1e-1, "log": True},
    "proxy_lr": {"low": 1e-4, "high": 1.0, "log": True},
}
SIDES = {"groceries": 96, "drawings": 64, "glyphs": 64}
"""The side in pixels on which the features are computed."""
LOSSES = ("proxy_anchor", "multi_similarity", "soft_triple", "mpa", "pnp")


def data_set(name: str, images: Path) -> Dataset:
    """Return a data set of images by its name in :data:`SIDES`."""
    if name == "glyphs":
        return DATASETS["glyphs"](num_classes=128, images_per_class=20, size=SIDES["glyphs"])
    folder = {"groceries": "grocery", "drawings": "omniglot"}[name]
    return DATASETS["folder"](root=str(images / folder / "images"))


def divisions(dataset: Dataset) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    """Return the classes that train, validate and score, of each division of the training half."""
    split = make_split(dataset.identity(), tuple(dataset.classes()), None, ratio=0.75, seed=0, folds=DIVISIONS + 1)
    *folds, other = split.folds
    return [
        (tuple(name for name in split.train if name not in {*validation, *other}), validation, other)
        for validation in folds
    ]


def features_file(name: str, images: Path, weights: Path, work: Path) -> Path:
    """Compute the features of at most :data:`IMAGES_PER_CLASS` images of each class of the training half, once.

    The trainings see their first principal components, scaled to a root mean square of 1, because a step on all of them
    takes five times as long.
    """
    path = work / f"{name}.npz"
    if path.exists():
        return path
    dataset = data_set(name, images)
    half = tuple(itertools.chain(*divisions(dataset)[0]))
    side = SIDES[name]
    spec = StoreSpec(
        dataset=dataset,
        class_names=tuple(name for name in dataset.classes() if name in half),
        short_side=round(side * 256 / 224),
        cache=str(work / "cache"),
    )
    model = ModelConfig(backbone=BACKBONE, weights=str(weights), freeze="backbone")
    inputs = Inputs(spec, model, TrainingConfig(image_size=side), torch.device("cpu"))
    view = inputs.view(spec.class_names)
    labels_N = np.asarray(view.labels_N)
    kept_N = np.zeros(len(labels_N), bool)
    for label in range(len(spec.class_names)):
        kept_N[np.flatnonzero(labels_N == label)[:IMAGES_PER_CLASS]] = True
    features_NF = inputs.features().numpy()[kept_N]
    _, _, axes_FF = np.linalg.svd(features_NF - features_NF.mean(0), full_matrices=False)
    components_NP = (features_NF - features_NF.mean(0)) @ axes_FF[:COMPONENTS].T
    arrays = {
        "embeddings": (components_NP / np.sqrt((components_NP**2).mean())).astype(np.float32),
        "labels": np.array(spec.class_names)[labels_N[kept_N]],
        "ids": np.array(view.image_keys)[kept_N],
    }
    write_whole(path, lambda stream: np.savez(stream, **arrays))
    return path


class Unkept(Training):
    """A training without checkpoints, whose best epoch is also scored on the classes ``other``."""

    def __init__(self, spec: TrialSpec, other: tuple[str, ...]) -> None:
        super().__init__(spec, torch.device("cpu"))
        self._other = Validation(spec.metrics, spec.images.dataset, self._inputs.view(other))
        self._embeddings_of_best: torch.Tensor | None = None

    def _new_attempt(self, origin: Mapping[str, Any]) -> dict[str, Any] | None:
        return None

    def _recorded(self, record: EpochRecord) -> EpochRecord:
        self.records.append(record)
        return record

    def _validate(self) -> dict[str, float]:
        metrics = super()._validate()
        if metrics[OBJECTIVE] > max((record["metrics"][OBJECTIVE] for record in self.records), default=-math.inf):
            (view,) = self._other.views
            self._embeddings_of_best = self._embed(view)
        return metrics

    @property
    def values(self) -> list[float]:
        """The validation value of each epoch, fewer if the training diverged."""
        return [record["metrics"][OBJECTIVE] for record in self.records]

    def score_other(self) -> float | None:
        """Score the best epoch on the other classes; None without an epoch."""
        if self._embeddings_of_best is None:
            return None
        return self._other.scores(self._embeddings_of_best)[OBJECTIVE]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The trainings of one table: ``loss`` on the features ``file`` of ``data``, divided as its images are.

    ``count`` is the number of configurations.
    """

    loss: str
    data: str
    file: Path
    parts: list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]
    count: int = CONFIGURATIONS

    @property
    def name(self) -> str:
        """The name of the table."""
        return f"{self.loss}-{self.data}"

    @cached_property
    def dataset(self) -> FeatureFile:
        """The features."""
        return FeatureFile(file=self.file)

    @cached_property
    def training(self) -> TrainingConfig:
        """The settings of every training, before the learning rates of its configuration."""
        return TrainingConfig(epochs=EPOCHS, batch_size=BATCH, precision="float32")

    @cached_property
    def space(self) -> SearchSpace:
        """The loss's own space, with the learning rates."""
        return search_space(self.loss, self.training, {}, {"training": RATES})

    @cached_property
    def configurations(self) -> list[Params]:
        """Trial 0, and the points of the product's Sobol sequence after it."""
        sampler = Qmc(loss=self.loss, space=self.space, seed=0, trials=self.count)
        return [
            self.space.complete(sampler.build(number, [])._values)  # type: ignore[attr-defined]
            for number in range(self.count)
        ]

    @property
    def trainings(self) -> Iterator[tuple[int, int, int]]:
        """The configuration, the division and the seed of each training."""
        return itertools.product(range(self.count), range(DIVISIONS), range(SEEDS))

    def spec(self, configuration: int, division: int, seed: int, work: Path) -> TrialSpec:
        """Return the specification of a training."""
        learned, validation, _ = self.parts[division]
        params = self.configurations[configuration]
        return TrialSpec(
            loss=self.loss,
            hyperparameters=params.loss,
            model=ModelConfig(backbone=f"{FEATURES}:{self.dataset.features()}", embedding_dim=DIMENSIONS),
            training=replace(self.training, **params.training),
            images=StoreSpec(
                dataset=self.dataset,
                class_names=tuple(self.dataset.classes()),
                short_side=1,
                cache=str(work / "cache"),
            ),
            train_classes=learned,
            validation_classes=validation,
            metrics=(OBJECTIVE,),
            objective=OBJECTIVE,
            seed=derived_seed(self.name, configuration, division, seed),
            directory=str(work / "none"),
        )


def trained(plan: Plan, work: Path) -> list[dict[str, Any]]:
    """Train what is missing of a table, a line of ``WORK/<name>.jsonl`` each, and return all lines."""
    path = work / f"{plan.name}.jsonl"
    lines = read_lines(path)
    done = {(line["configuration"], line["division"], line["seed"]) for line in lines}
    for configuration, division, seed in plan.trainings:
        if (configuration, division, seed) in done:
            continue
        training = Unkept(plan.spec(configuration, division, seed, work), plan.parts[division][2])
        with suppress(Diverged):
            while not training.finished:
                training.run_epoch()
        line = {
            "configuration": configuration, "division": division, "seed": seed,
            "validation": training.values, "other": training.score_other(),
        }  # fmt: skip
        append_lines(path, [line])
        lines.append(line)
    return lines


def write_table(plan: Plan, lines: list[dict[str, Any]], path: Path) -> None:
    """Write a table: a row for each training, with its validation values and what its best epoch is worth."""
    lines = sorted(lines, key=lambda line: (line["configuration"], line["division"], line["seed"]))
    columns = {
        **{
            name: pa.array([line[name] for line in lines], pa.int16()) for name in ("configuration", "division", "seed")
        },
        "validation": pa.array([line["validation"] for line in lines], pa.list_(pa.float32())),
        "other": pa.array([line["other"] for line in lines], pa.float32()),
    }
    parameters = {
        name: {
            "distribution": distribution_to_json(entry.distribution),
            "default": entry.default,
            "source": entry.source,
            "when": {other: list(values) for other, values in entry.when.items()},
        }
        for name, entry in plan.space.parameters.items()
    }
    about = {
        "command": f"python -m benchmarks.search.tables IMAGES WEIGHTS WORK --only {plan.name} "
        f"--configurations {plan.count}",
        "loss": plan.loss,
        "epochs": EPOCHS,
        "data": plan.data,
        "classes": [[len(part) for part in parts] for parts in plan.parts],
        "torch": torch.__version__,
        "parameters": parameters,
        "configurations": [dict(params) for params in plan.configurations],
    }
    table = pa.table(columns).replace_schema_metadata({"holdout": json.dumps(about)})
    write_whole(path, lambda stream: parquet.write_table(table, stream, compression="zstd"))


def main() -> None:
    """Make the tables that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("images", "weights", "work"):
        parser.add_argument(name, type=Path)
    names = [f"{loss}-{data}" for data, loss in itertools.product(SIDES, LOSSES)]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="TABLE", help="such as pnp-glyphs")
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS, help="trial 0 among them")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    wanted.work.mkdir(parents=True, exist_ok=True)
    for name in wanted.only:
        loss, _, data = name.rpartition("-")
        path = TABLES / f"{name}.parquet"
        if path.exists():
            continue
        begin = time.monotonic()
        file = features_file(data, wanted.images, wanted.weights, wanted.work)
        parts = divisions(data_set(data, wanted.images))
        plan = Plan(loss=loss, data=data, file=file, parts=parts, count=wanted.configurations)
        write_table(plan, trained(plan, wanted.work), path)
        print(f"{name}: {time.monotonic() - begin:.0f} s, {path.stat().st_size:,} bytes", flush=True, file=sys.stderr)


if __name__ == "__main__":
    main()
