"""Comparison of validation galleries: validation classes only, or with half of the training images.

    python -m benchmarks.gallery [FOLDER]

Random configurations are trained with several seeds each, on the fixed split of a folder of images or of ``glyphs``.
After every epoch the validation images are ranked in each gallery; the value of a gallery is that of its best epoch,
whose model is scored on the test classes. The quality of a configuration is the mean test value of its other seeds.
Reported are the correlation between value and quality over configurations, and the test value lost by choosing the
configuration with the highest value; both are means over seeds, ± their standard deviation.

Shapes: N images, D embedding, C configurations, S seeds.
"""

import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import optuna
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from spaces.search_space import search_space
from spaces.space import Params
from trainables.data import DATASETS
from trainables.data.split import ClassSplit, split_dataset
from trainables.data.store.store_spec import StoreSpec
from trainables.data.store.view import Store, StoreView
from trainables.inference.model_files import read_network
from trainables.metrics.evaluation import evaluate
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel
from trainables.training.spec import TrialSpec, derived_seed
from trainables.training.train import Training, embed
from trainables.training.training_config import TrainingConfig

LOSSES = ("proxy_anchor", "multi_similarity")
CONFIGURATIONS, SEEDS = 12, 3
OBJECTIVE = "map_at_r"
TRAINING = TrainingConfig(epochs=6, image_size=20)
LEARNING_RATES = {"lr": {"low": 1e-4, "high": 1e-2, "log": True}}
CPU = torch.device("cpu")


def _in_order_of_hash(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: hashlib.sha256(f"0:{name}".encode()).digest())


def no_images(view: StoreView) -> Tensor:
    """Return no training images."""
    return torch.zeros(len(view), dtype=torch.bool)


def half_of_each_class(view: StoreView) -> Tensor:
    """Return, for each training class, the half of its images with the lowest hashes."""
    keys = np.array(view.image_keys)
    chosen = set[str]()
    for label in view.labels_N.unique().tolist():
        of_class = _in_order_of_hash(keys[view.labels_N.numpy() == label].tolist())
        chosen |= set(of_class[: (len(of_class) + 1) // 2])
    return torch.tensor([key in chosen for key in keys])


def half_of_the_classes(view: StoreView) -> Tensor:
    """Return all images of the half of the training classes with the lowest hashes."""
    chosen = _in_order_of_hash(list(view.class_names))[: len(view.class_names) // 2]
    return torch.isin(view.labels_N, torch.tensor([view.class_names.index(name) for name in chosen]))


WAYS: dict[str, Callable[[StoreView], Tensor]] = {
    "validation": no_images,
    "and half of each training class": half_of_each_class,
    "and half of the training classes": half_of_the_classes,
}


@dataclass(frozen=True, kw_only=True)
class Images:
    """The opened views of the three parts, and the training images in each gallery."""

    split: ClassSplit
    store: StoreSpec
    train: StoreView
    validation: StoreView
    test: StoreView
    taken: dict[str, Tensor]


def opened(source: str, cache: Path) -> Images:
    """Open the images of a folder, or of ``glyphs``."""
    dataset = DATASETS["glyphs"]() if source == "glyphs" else DATASETS["folder"](root=source)
    names = tuple(dataset.classes())
    split = split_dataset(dataset, dataset.classes(), ratio=0.9, seed=0)
    spec = StoreSpec(dataset=dataset, class_names=names, short_side=TRAINING.frame.short_side, cache=str(cache))
    store: Store = spec.open()
    train = store.subset(split.train)
    return Images(
        split=split,
        store=spec,
        train=train,
        validation=store.subset(split.validation),
        test=store.subset(split.test),
        taken={name: way(train) for name, way in WAYS.items()},
    )


@dataclass(frozen=True, kw_only=True)
class Found:
    """A training's best validation value in each gallery, and the test value of that epoch's model."""

    values: dict[str, float]
    tests: dict[str, float]
    seconds: dict[str, float]


def _embedded(model: EmbeddingModel, view: StoreView, training: TrainingConfig) -> Tensor:
    return embed(
        model, view, training.frame, batch_size=training.embedding_batch, device=CPU, precision=training.precision
    )


def measured(spec: TrialSpec, images: Images) -> Found:
    """Train ``spec`` and validate every epoch in each gallery."""
    values = dict.fromkeys(WAYS, -1.0)
    best: dict[str, int] = {}
    weights: dict[int, dict[str, Tensor]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    model = EmbeddingModel(spec.model)
    training = Training(spec, CPU)
    while not training.finished:
        record = training.run_epoch()
        training.wait_for_checkpoints()
        # Without validation classes every epoch counts as the best so far and is saved.
        weights[record["epoch"]] = read_network(Path(spec.directory) / str(record["checkpoint"]))[0]
        model.load_state_dict(weights[record["epoch"]])
        start = time.perf_counter()
        of_validation_ND = _embedded(model, images.validation, spec.training)
        middle = time.perf_counter()
        of_train_ND = _embedded(model, images.train, spec.training)
        an_image = (time.perf_counter() - middle) / len(images.train)
        for name, taken_N in images.taken.items():
            begin = time.perf_counter()
            value = evaluate(
                torch.cat([of_validation_ND, of_train_ND[taken_N]]),
                torch.cat([images.validation.labels_N, -1 - images.train.labels_N[taken_N]]),
                [OBJECTIVE, "recall_at_1"],
                queries=len(images.validation),
            )[OBJECTIVE]
            evaluated = time.perf_counter() - begin
            seconds[name].append(middle - start + an_image * int(taken_N.sum()) + evaluated)
            if value > values[name]:
                values[name], best[name] = value, record["epoch"]
    tests: dict[int, float] = {}
    for epoch in set(best.values()):
        model.load_state_dict(weights[epoch])
        of_test_ND = _embedded(model, images.test, spec.training)
        tests[epoch] = evaluate(of_test_ND, images.test.labels_N, [OBJECTIVE])[OBJECTIVE]
    return Found(
        values=values,
        tests={name: tests[epoch] for name, epoch in best.items()},
        seconds={name: statistics.median(times) for name, times in seconds.items()},
    )


def configurations(loss: str) -> list[Params]:
    """Return the default, and random configurations from the ranges of the loss and the learning rate."""
    space = search_space(loss, TRAINING, {}, {"training": LEARNING_RATES})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    return [space.default, *(space.suggest(study.ask()) for _ in range(CONFIGURATIONS - 1))]


def spec_of(loss: str, configuration: Params, seed: int, images: Images, directory: str) -> TrialSpec:
    """Return the spec of a configuration with the ``seed``-th seed, without validation."""
    return TrialSpec(
        loss=loss,
        hyperparameters=configuration.loss,
        model=ModelConfig(),
        training=TrainingConfig(epochs=TRAINING.epochs, image_size=TRAINING.image_size, **configuration.training),
        images=images.store,
        train_classes=images.split.train,
        validation_classes=(),
        metrics=(OBJECTIVE,),
        objective=OBJECTIVE,
        seed=derived_seed("gallery", seed),
        directory=directory,
    )


def of_one_value(values_CS: np.ndarray, tests_CS: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, by seed [S], two statistics of choosing a configuration by one training's value.

    They are the correlation of the value with the mean test value of the other seeds, and the test value lost by
    choosing the highest value.
    """
    correlations, regrets = [], []
    for seed in range(values_CS.shape[1]):
        worth_C = np.delete(tests_CS, seed, axis=1).mean(1)
        correlations.append(np.corrcoef(values_CS[:, seed], worth_C)[0, 1])
        regrets.append(worth_C.max() - worth_C[values_CS[:, seed].argmax()])
    return np.array(correlations), np.array(regrets)


def main(source: str = "glyphs") -> None:
    """Train all, and print one row per gallery."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    console = Console(width=120)
    found: dict[str, list[list[Found]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        images = opened(source, Path(folder) / "cache")
        begin = time.perf_counter()
        for loss in LOSSES:
            found[loss] = []
            for number, configuration in enumerate(track(configurations(loss), loss, console=Console(stderr=True))):
                specs = [
                    spec_of(loss, configuration, seed, images, f"{folder}/{loss}/{number}/{seed}")
                    for seed in range(SEEDS)
                ]
                found[loss].append([measured(spec, images) for spec in specs])
        took = time.perf_counter() - begin
    table = Table(
        title=f"{source}: {len(images.split.train)} classes train, {len(images.split.validation)} validate, "
        f"{len(images.split.test)} test; {CONFIGURATIONS} configurations × {SEEDS} seeds, {TRAINING.epochs} epochs, "
        f"{OBJECTIVE}; {took:.0f} s"
    )
    for column in ("loss", "gallery", "correlation", "test regret", "test of the best", "s a validation"):
        table.add_column(column, justify="right")
    for loss, of_loss in found.items():
        for name in WAYS:
            values_CS = np.array([[training.values[name] for training in row] for row in of_loss])
            tests_CS = np.array([[training.tests[name] for training in row] for row in of_loss])
            correlations_S, regrets_S = of_one_value(values_CS, tests_CS)
            best = float(tests_CS.mean(1).max() - regrets_S.mean())
            seconds = statistics.fmean(training.seconds[name] for row in of_loss for training in row)
            table.add_row(
                loss,
                name,
                f"{correlations_S.mean():.3f} ± {correlations_S.std(ddof=1):.3f}",
                f"{regrets_S.mean():.4f} ± {regrets_S.std(ddof=1):.4f}",
                f"{best:.4f}",
                f"{seconds:.3f}",
            )
    console.print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
