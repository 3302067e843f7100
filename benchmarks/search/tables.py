"""Tables of real trainings, from which ``python -m benchmarks choice`` replays searches.

    python -m benchmarks.search.tables IMAGES WEIGHTS WORK [--only TABLE …] [--configurations N]

IMAGES holds ``omniglot/images`` and ``grocery/images`` (one sub-folder per class), WEIGHTS is a file for timm's
``tf_efficientnet_lite0``, and WORK is a folder for the features and for what is trained so far: an interrupted program
continues where it stopped. A finished table is written to ``benchmarks/tables``.

A table is one loss on one division of a data set's classes into a training half and a test half. Its configurations
are trial 0 and the points that the product's ``qmc`` sampler proposes after it. Each is trained as a search does it,
with several seeds: on nine tenths of the training half, every epoch validated by the last tenth. The best epoch is
scored on the test classes: the mean over seeds is what a configuration is worth. And each is trained as the
confirmation does it: on each half of the training classes, validated by the other half, class by class.

The network is a linear layer on features of a frozen one: on 256 principal components, turned by a fixed
rotation. The components themselves would be other data: Adam gives each coordinate a step of the same size, and a rate
that spoils the layer on raw features does less harm where most coordinates are small.

Legend: N images, F features, P principal components.
"""

import argparse
import itertools
import json
import runpy
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from optuna.distributions import distribution_to_json
from pyarrow import parquet

from benchmarks.json_lines import append_lines, read_lines
from search.config.search_config import validate_config
from search.records.plan import Plan, training_of
from search.records.runs import RunFolder
from search.stages import Stage
from search.study.samplers import Qmc
from spaces.search_space import SearchSpace, search_space
from spaces.space import Params
from trainables.common.files import write_whole
from trainables.data import DATASETS
from trainables.data.sets.features import FeatureFile
from trainables.data.split import ClassSplit, split_dataset
from trainables.data.store.store_spec import StoreSpec
from trainables.data.store.view import training_half
from trainables.models import ModelConfig
from trainables.training.epoch_training import Diverged, Validation
from trainables.training.inputs import Inputs
from trainables.training.spec import EpochRecord, TrialSpec, derived_seed
from trainables.training.train import Training
from trainables.training.training_config import TrainingConfig
from trainables.training.untrained_network import whitened, whitening

TABLES = Path(__file__).parent.parent / "tables"
NETWORKS = TABLES / "networks.json"
OBJECTIVE = "map_at_r"
BACKBONE, COMPONENTS = "timm:tf_efficientnet_lite0", 256
CONFIGURATIONS, SEEDS = 32, 2
RATES = {"lr": {"low": 1e-5, "high": 1e-2, "log": True}, "proxy_lr": {"low": 1e-4, "high": 1.0, "log": True}}
TRAINING = {
    "epochs": 20,
    "batch_size": 60,
    "images_per_class": 5,
    "lr": 1e-3,
    "schedule": {"step": 10, "gamma": 0.1},
}
"""Of ``examples/frozen_features.yaml``."""
SIDES = {"groceries": 112, "drawings": 64, "glyphs": 64}
"""The side in pixels on which the features are computed."""
DATA = {"groceries": (40, 41, 30), "drawings": (40, 68, 20), "glyphs": (40, 64, 20), "docstrings": (80, 120, 12)}
"""The data sets, with the most classes that train and that test, and the most items of each."""
LOSSES = {
    "contrastive": ("far", "balanced"),
    "soft_triple": ("11", "random"),
    "triplet": ("12", "balanced"),
    "arcface": ("12", "random"),
    "topk_precision": ("11", "balanced"),
    "proxy_nca": ("far", "random"),
}
"""The losses, with the division of the classes and the batches.

A number is the seed of a random division; no rule was chosen on one of them. In the division ``far`` the classes are
in the order of the first principal component of their means, so that the test classes are unlike the training classes.
"""


# Features.


def features_file(name: str, images: Path, weights: Path, work: Path) -> Path:
    """Compute the features of a data set, once."""
    path = work / f"{name}.npz"
    if path.exists():
        return path
    if name == "docstrings":
        runpy.run_path(str(Path(__file__).parents[2] / "examples" / "docstrings.py"))["main"](str(path))
        return path
    features_NF, labels_N = of_images(name, images, weights, work)
    write_whole(path, lambda stream: np.savez(stream, embeddings=features_NF, labels=labels_N))
    return path


def of_images(name: str, images: Path, weights: Path, work: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of all images of a data set by the pretrained network, and their classes."""
    if name == "glyphs":
        dataset = DATASETS["glyphs"](num_classes=128, images_per_class=20, size=SIDES["glyphs"])
    else:
        folder = {"groceries": "grocery", "drawings": "omniglot"}[name]
        dataset = DATASETS["folder"](root=str(images / folder / "images"))
    side, classes = SIDES[name], tuple(dataset.classes())
    spec = StoreSpec(
        dataset=dataset, class_names=classes, short_side=round(side * 256 / 224), cache=str(work / "cache")
    )
    model = ModelConfig(backbone=BACKBONE, weights=str(weights), freeze="backbone")
    inputs = Inputs(spec, model, TrainingConfig(image_size=side), torch.device("cpu"))
    return inputs.features().numpy(), np.array(classes)[np.asarray(inputs.view(classes).labels_N)]


@dataclass(frozen=True, kw_only=True)
class Divided(FeatureFile):
    """The features of a data set, of whose ``halves`` of classes, in their order, one trains and one tests."""

    division: str
    halves: tuple[tuple[str, ...], tuple[str, ...]]

    def classes(self) -> dict[str, tuple[str, ...]]:
        found = super().classes()
        return {name: found[name] for name in itertools.chain(*self.halves)}

    def identity(self) -> str:
        return self.division

    def published_split(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.halves


def divided(name: str, division: str, features: Path, work: Path) -> tuple[Path, ClassSplit]:
    """Divide the classes of a data set, and write what the trainings see, once."""
    arrays = np.load(features)
    features_NF, labels_N = arrays["embeddings"].astype(np.float32), arrays["labels"]
    training, test, most = DATA[name]
    names = np.unique(labels_N)
    if division == "far":
        means_CF = np.stack([features_NF[labels_N == label].mean(0) for label in names])
        places_CF, _, _ = np.linalg.svd(means_CF - means_CF.mean(0), full_matrices=False)
        names = names[places_CF[:, 0].argsort()]
    else:
        names = np.random.default_rng(int(division)).permutation(names)
    half = len(names) // 2
    published = names[:half][:training].tolist(), names[half:][-test:].tolist()
    path = work / f"{name}-{division}.npz"
    if not path.exists():
        rows = [np.flatnonzero(labels_N == label)[:most] for label in itertools.chain(*published)]
        learned = np.concatenate(rows[:training])
        _, _, axes_FF = np.linalg.svd(features_NF[learned], full_matrices=False)
        rotation_PP, _ = np.linalg.qr(np.random.default_rng(7).normal(size=(COMPONENTS, COMPONENTS)))
        kept = np.concatenate(rows)
        seen_NP = (features_NF[kept] @ axes_FF[:COMPONENTS].T @ rotation_PP).astype(np.float32)
        write_whole(path, lambda stream: np.savez(stream, embeddings=seen_NP, labels=labels_N[kept]))
    dataset = Divided(file=path, division=f"{name}-{division}", halves=(tuple(published[0]), tuple(published[1])))
    return path, split_dataset(dataset, dataset.classes(), ratio=0.9, seed=0)


# Trainings.


class Unkept(Training):
    """A training without checkpoints, whose best epoch is also scored on the classes ``test``."""

    def __init__(self, spec: TrialSpec, test: tuple[str, ...]) -> None:
        super().__init__(spec, torch.device("cpu"))
        self._test = Validation(spec.metrics, spec.images.dataset, self._inputs.view(test)) if test else None
        self._tested: torch.Tensor | None = None

    def _new_attempt(self, origin: Any) -> None:
        return None

    def _save(self, record: EpochRecord) -> None:
        self.records.append(record)
        if record["metrics"][OBJECTIVE] > self._best:
            self._best = record["metrics"][OBJECTIVE]
            if self._test is not None:
                (view,) = self._test.views
                self._tested = self.embed(view)

    def wait_for_checkpoints(self) -> None:
        pass

    def line(self) -> dict[str, Any]:
        """Train to the end, or until it diverges; return the validation, of classes too, and the test's value."""
        try:
            while not self.finished:
                self.run_epoch()
        except Diverged:
            pass
        classes = [record["classes"] for record in self.records if "classes" in record]
        return {
            "validation": [record["metrics"][OBJECTIVE] for record in self.records],
            "classes": classes[-1] if classes else {},
            "test": None if self._tested is None or self._test is None else self._test.scores(self._tested)[OBJECTIVE],
        }


@dataclass(frozen=True, kw_only=True)
class Maker:
    """The trainings of one table: ``loss`` on the features in ``file``, with the classes in ``split``."""

    loss: str
    file: Path
    split: ClassSplit
    count: int
    work: Path

    @property
    def name(self) -> str:
        """The name of the table."""
        return f"{self.loss}-{self.split.identity}"

    @cached_property
    def plan(self) -> Plan:
        """The product's plan of this search."""
        validated = validate_config(
            {
                "name": self.name,
                "dataset": {"name": "features", "file": str(self.file), "cache": str(self.work / "cache")},
                "model": {"embedding_dim": 128},
                "training": {**TRAINING, "sampler": LOSSES[self.loss][1]},
                "losses": [self.loss],
                "metrics": {"gallery": "training_half", "validation": [OBJECTIVE]},
            }
        )
        config = validated.result()
        space = search_space(self.loss, config.training, {}, {"training": RATES})
        folder = RunFolder(runs=self.work, name=self.name)
        return Plan(config=config, folder=folder, split=self.split, spaces={self.loss: space})

    @property
    def space(self) -> SearchSpace:
        """The loss's own space, with the learning rates."""
        return self.plan.spaces[self.loss]

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
        """The configuration, the half (0 for the fixed split) and the seed of each training."""
        for configuration in range(self.count):
            yield from ((configuration, 0, seed) for seed in range(SEEDS))
            yield from ((configuration, half, 0) for half in (1, 2))

    def line(self, configuration: int, half: int, seed: int) -> dict[str, Any]:
        """Train one of them."""
        attributes = (
            {"half": half, "seed": derived_seed(self.name, "half")}
            if half
            else {"seed": derived_seed(self.name, configuration, seed)}
        )
        trial: Any = SimpleNamespace(params=self.configurations[configuration], user_attrs=attributes, number=0)
        spec = training_of(self.plan, self.loss, Stage.SELECT, trial)
        images = replace(spec.images, class_names=tuple(spec.images.dataset.classes()))
        test = () if half else self.split.test
        return {
            "configuration": configuration, "half": half, "seed": seed,
            **Unkept(replace(spec, images=images), test).line(),
        }  # fmt: skip

    def lines(self) -> list[dict[str, Any]]:
        """Train what is missing of the table, a line of ``WORK/<name>.jsonl`` each, and return all lines."""
        path = self.work / f"{self.name}.jsonl"
        lines = {(line["configuration"], line["half"], line["seed"]): line for line in read_lines(path)}
        for key in self.trainings:
            if key not in lines:
                lines[key] = self.line(*key)
                append_lines(path, [lines[key]])
        return [lines[key] for key in self.trainings]


def write_table(maker: Maker, path: Path) -> None:
    """Train what is missing and write a table, a row for each training."""
    lines = maker.lines()
    columns = {
        **{name: pa.array([line[name] for line in lines], pa.int16()) for name in ("configuration", "half", "seed")},
        "validation": pa.array([line["validation"] for line in lines], pa.list_(pa.float32())),
        "classes": pa.array([list(line["classes"].values()) for line in lines], pa.list_(pa.float32())),
        "test": pa.array([line["test"] for line in lines], pa.float32()),
    }
    parameters = {
        name: {
            "distribution": distribution_to_json(entry.distribution),
            "default": entry.default,
            "source": entry.source,
            "when": {other: list(values) for other, values in entry.when.items()},
        }
        for name, entry in maker.space.parameters.items()
    }
    split = maker.split
    about = {
        "command": f"python -m benchmarks.search.tables IMAGES WEIGHTS WORK --only {maker.name} "
        f"--configurations {maker.count}",
        "loss": maker.loss,
        "epochs": maker.plan.config.training.epochs,
        "classes": {"train": len(split.train), "validation": len(split.validation), "test": len(split.test)},
        "torch": torch.__version__,
        "parameters": parameters,
        "configurations": [dict(params) for params in maker.configurations],
    }
    table = pa.table(columns).replace_schema_metadata({"holdout": json.dumps(about)})
    write_whole(path, lambda stream: parquet.write_table(table, stream, compression="zstd"))


def write_networks(split: ClassSplit, file: Path, work: Path) -> None:
    """Add the division ``split`` of the features in ``file`` to ``networks.json``: their values without training."""
    content = json.loads(NETWORKS.read_text()) if NETWORKS.exists() else {}
    if split.identity in content:
        return
    plan = Maker(loss="contrastive", file=file, split=split, count=1, work=work).plan
    images = replace(plan.images, class_names=tuple(plan.images.dataset.classes()))
    inputs = Inputs(images, plan.config.model, plan.config.training_of("contrastive"), torch.device("cpu"))
    features_NF = inputs.features()
    found: dict[str, dict[str, Any]] = {name: {"halves": []} for name in ("untrained", "whitened")}
    divisions = [*(split.half(half) for half in (1, 2)), ((*split.train, *split.validation), split.test)]
    for place, (learned, scored) in enumerate(divisions):
        learned_view, view = inputs.view(learned), inputs.view(scored)
        gallery = training_half(learned_view, split.seed) if place < 2 else None
        validation = Validation([OBJECTIVE], images.dataset, view, gallery)
        rows = torch.cat([part.rows_N for part in validation.views])
        layer = whitening(features_NF[learned_view.rows_N], plan.config.model.embedding_dim)
        for name, embeddings in (("untrained", features_NF), ("whitened", whitened(features_NF, layer))):
            if gallery is None:
                found[name]["test"] = round(validation.scores(embeddings[rows])[OBJECTIVE], 5)
            else:
                by_class = validation.by_class(embeddings[rows], OBJECTIVE)
                found[name]["halves"] += [round(value, 5) for value in by_class.values()]
    lines = [f"{json.dumps(name)}:{json.dumps(entry, separators=(',', ':'))}" for name, entry in content.items()]
    lines.append(f"{json.dumps(split.identity)}:{json.dumps(found, separators=(',', ':'))}")
    text = ",\n".join(sorted(lines))
    write_whole(NETWORKS, lambda stream: stream.write(f"{{{text}}}\n".encode()))


def main() -> None:
    """Make the tables that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("images", "weights", "work"):
        parser.add_argument(name, type=Path)
    tables = {
        f"{loss}-{data}-{division}": (loss, data, division)
        for (loss, (division, _)), data in itertools.product(LOSSES.items(), DATA)
    }
    parser.add_argument("--only", nargs="+", choices=tables, default=list(tables), metavar="TABLE")
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS, help="trial 0 among them")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    wanted.work.mkdir(parents=True, exist_ok=True)
    for name in wanted.only:
        loss, data, division = tables[name]
        path = TABLES / f"{name}.parquet"
        if path.exists():
            continue
        begin = time.monotonic()
        features = features_file(data, wanted.images, wanted.weights, wanted.work)
        file, split = divided(data, division, features, wanted.work)
        write_networks(split, file, wanted.work)
        write_table(Maker(loss=loss, file=file, split=split, count=wanted.configurations, work=wanted.work), path)
        print(f"{name}: {time.monotonic() - begin:.0f} s, {path.stat().st_size:,} bytes", flush=True, file=sys.stderr)


if __name__ == "__main__":
    main()
