"""Prediction of a fine-tuned value from the value of the same hyperparameters on frozen features.

    python -m benchmarks.first_on_features WEIGHTS IMAGES RESULTS [POINTS]

WEIGHTS is a file for timm's ``tf_efficientnet_lite0``; IMAGES has ``grocery/images`` and ``omniglot/images``. For each
loss, the default and points of a Sobol sequence in the loss's own space are trained twice from these weights: a linear
head on the features of the frozen backbone, and the network. Learning rates are fixed. A value is the best epoch's
MAP@R on the validation classes; no test class is read. Results are appended to ``results.jsonl`` in the folder RESULTS,
where an interrupted measurement is resumed; POINTS (default 24) may grow.

Shapes: C configurations, R resamples.
"""

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from rich.console import Console
from rich.table import Table
from scipy.stats import rankdata

from benchmarks.json_lines import append_lines, read_lines
from search.tables import SAMPLERS
from spaces.search_space import SearchSpace, search_space
from trainables.data.sets.folders import Folder
from trainables.data.split import split_dataset
from trainables.data.store.store_spec import StoreSpec
from trainables.models.config import BACKBONE, ModelConfig
from trainables.training.epoch_training import Diverged
from trainables.training.spec import TrialSpec
from trainables.training.train import train
from trainables.training.training_config import TrainingConfig

DATASETS = {"groceries": "grocery/images", "drawings": "omniglot/images"}
LOSSES = ("proxy_anchor", "multi_similarity", "triplet")
POINTS = 24
"""Points of the Sobol sequence, by default; the loss's default, number 0, is trained in addition."""
SEEDS = 3
"""Seeds of each loss's default, for the noise."""
FINALISTS = 3
CLASSES, PER_CLASS, RATIO = 80, 8, 0.5
METRIC = "map_at_r"
FROZEN = ("*conv_dw*",)
"""The depthwise kernels, 5 % of the weights, whose gradients take two thirds of a step on a CPU."""
FINE_TUNING = TrainingConfig(epochs=3, batch_size=20, images_per_class=4, image_size=40, lr=1e-4, head_lr=1e-3)
ON_FEATURES = replace(FINE_TUNING, epochs=10)
RESAMPLES = 10_000

Arm = str
FEATURES, TUNED = "features", "fine-tuned"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training: a configuration of a loss on a data set, with a seed, in one arm."""

    dataset: str
    loss: str
    number: int
    seed: int
    arm: Arm
    spec: TrialSpec

    @property
    def key(self) -> str:
        """What identifies the result; a spec's digest covers neither the data set nor the images of a class."""
        return f"{self.dataset}, {PER_CLASS} images a class: {self.spec.digest}"


def linked(source: Path, target: Path, count: int = CLASSES, per_class: int = PER_CLASS) -> Folder:
    """Return a data set of links to ``per_class`` images of each of ``count`` classes, evenly spaced in order."""
    classes = Folder(root=source).classes()
    for name in _spaced(list(classes), count):
        for key in _spaced(list(classes[name]), per_class):
            link = target / key
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to((source / key).resolve())
    return Folder(root=target)


def _spaced(names: list[str], count: int) -> list[str]:
    count = min(count, len(names))
    return [names[index * len(names) // count] for index in range(count)]


def configurations(loss: str, points: int) -> list[Mapping[str, Any]]:
    """Return the hyperparameters of the default and of the points, as ``search.sampler: qmc`` proposes them."""
    space = search_space(loss, FINE_TUNING, {})
    sampler = SAMPLERS["qmc"](loss=loss, space=space, seed=0, trials=points + 1)
    return [_proposed(space, sampler.build(number, [])) for number in range(points + 1)]


def _proposed(space: SearchSpace, sampler: optuna.samplers.BaseSampler) -> Mapping[str, Any]:
    return space.suggest(optuna.create_study(sampler=sampler).ask()).loss


def jobs(weights: str, images: Path, folder: Path, points: int) -> Iterator[Job]:
    """Yield the trainings, so that the first ones already cover all losses and data sets; then those for the noise."""
    specs = {}
    for dataset, below in DATASETS.items():
        source = linked(images / below, folder / dataset)
        split = split_dataset(source, source.classes(), ratio=RATIO, seed=0)
        specs[dataset] = TrialSpec(
            loss="",
            hyperparameters={},
            model=ModelConfig(
                backbone="timm:tf_efficientnet_lite0", weights=weights, embedding_dim=512, freeze=FROZEN, freeze_bn=True
            ),
            training=FINE_TUNING,
            images=StoreSpec(
                dataset=source,
                class_names=(*split.train, *split.validation),
                short_side=FINE_TUNING.frame.short_side,
                cache=f"{folder}/cache",
            ),
            train_classes=split.train,
            validation_classes=split.validation,
            metrics=(METRIC,),
            objective=METRIC,
            seed=0,
            directory="",
        )
    of_losses = {loss: configurations(loss, points) for loss in LOSSES}
    wanted = [(number, 0) for number in range(points + 1)] + [(0, seed) for seed in range(1, SEEDS)]
    for number, seed in wanted:
        for dataset, spec in specs.items():
            for loss, found in of_losses.items():
                whole = replace(spec, loss=loss, hyperparameters=found[number], seed=seed)
                head = replace(whole, model=replace(whole.model, freeze=BACKBONE), training=ON_FEATURES)
                for arm, of_arm in ((FEATURES, head), (TUNED, whole)):
                    yield Job(dataset=dataset, loss=loss, number=number, seed=seed, arm=arm, spec=of_arm)


def trained(spec: TrialSpec) -> float:
    """Train and return the value of the best epoch; 0 if the training diverged."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return max(record["metrics"][METRIC] for record in train(replace(spec, directory=folder)))
        except Diverged:
            return 0.0


def measure(weights: str, images: Path, results: Path, points: int) -> list[dict[str, Any]]:
    """Train what is missing in ``results`` and return all results."""
    file = results / "results.jsonl"
    results.mkdir(parents=True, exist_ok=True)
    known = {row["key"]: row for row in read_lines(file)}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs(weights, images, Path(folder), points):
            if job.key not in known:
                begin = time.process_time()
                value = trained(job.spec)
                known[job.key] = {
                    "key": job.key, "dataset": job.dataset, "loss": job.loss, "number": job.number, "seed": job.seed,
                    "arm": job.arm, "params": dict(job.spec.hyperparameters), "value": value,
                    "cpu_s": time.process_time() - begin,
                }  # fmt: skip
                append_lines(file, [known[job.key]])
            # Two points may be one configuration, which is trained once.
            found.append({**known[job.key], "number": job.number, "seed": job.seed})
    return found


def correlations(features_C: np.ndarray, tuned_C: np.ndarray, seed: int) -> tuple[float, np.ndarray]:
    """Compute Spearman's rank correlation, and those [R] of resampled configurations (0 where one side is constant)."""
    rng = np.random.default_rng(seed)
    drawn_RC = np.vstack([np.arange(len(tuned_C)), rng.integers(len(tuned_C), size=(RESAMPLES, len(tuned_C)))])
    ranks_2RC = np.stack([rankdata(values_C[drawn_RC], axis=1) for values_C in (features_C, tuned_C)])
    ranks_2RC -= ranks_2RC.mean(axis=2, keepdims=True)
    norms_R = np.sqrt((ranks_2RC**2).sum(axis=2).prod(axis=0))
    found_R = ranks_2RC.prod(axis=0).sum(axis=1) / np.where(norms_R > 0, norms_R, 1)
    return float(found_R[0]), found_R[1:]


def told(rho: float, resampled_R: np.ndarray) -> tuple[str, str]:
    """Format a correlation and its 95 % percentile interval."""
    low, high = np.quantile(resampled_R, (0.025, 0.975))
    return f"{rho:.2f}", f"[{low:.2f}, {high:.2f}]"


def expected_best(values_C: np.ndarray, count: int) -> float:
    """Compute the expected maximum of ``count`` different values drawn at random."""
    ways = math.comb(len(values_C), count)
    return sum(math.comb(place, count - 1) * float(value) for place, value in enumerate(sorted(values_C))) / ways


def trials_to(good_C: np.ndarray) -> tuple[int, float]:
    """Return the place of the first good configuration in the given order, and its expected place in random order."""
    return int(np.argmax(good_C)) + 1, (len(good_C) + 1) / (int(good_C.sum()) + 1)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The values of a loss on a data set, in per cent: of all points, and the default's of each seed, fine-tuned."""

    dataset: str
    loss: str
    features_C: np.ndarray
    tuned_C: np.ndarray
    default: list[float]

    @property
    def noise(self) -> float:
        """The sample standard deviation of fine-tuned values over seeds."""
        return statistics.stdev(self.default)

    @property
    def limit(self) -> float:
        """The expected correlation of fine-tuned values with their own expectations, as far as seeds limit it."""
        return math.sqrt(max(0.0, 1 - (self.noise / self.tuned_C.std(ddof=1)) ** 2))

    @property
    def ordered_C(self) -> np.ndarray:
        """The fine-tuned values, in falling order of the values on features."""
        ordered_C: np.ndarray = self.tuned_C[np.argsort(-self.features_C, kind="stable")]
        return ordered_C


def measured(rows: list[dict[str, Any]], points: int) -> list[Measured]:
    """Return the values of each data set and loss."""
    values = {(row["dataset"], row["loss"], row["arm"], row["number"], row["seed"]): 100 * row["value"] for row in rows}
    return [
        Measured(
            dataset=dataset,
            loss=loss,
            features_C=np.array([values[dataset, loss, FEATURES, number, 0] for number in range(1, points + 1)]),
            tuned_C=np.array([values[dataset, loss, TUNED, number, 0] for number in range(1, points + 1)]),
            default=[values[dataset, loss, TUNED, 0, seed] for seed in range(SEEDS)],
        )
        for dataset in DATASETS
        for loss in LOSSES
    ]


def predicted_table(found: list[Measured]) -> Table:
    """Return a table of the correlations, and of their limit by the noise of seeds."""
    table = Table(title=f"{METRIC} on features and fine-tuned, {len(found[0].tuned_C)} Sobol points a loss")
    for column in ("images", "loss", "features", "fine-tuned", "SD of seeds", "Spearman", "95 % interval", "limit"):
        table.add_column(column, justify="right")
    rhos, resampled = [], []
    for seed, entry in enumerate(found):
        rho, resampled_R = correlations(entry.features_C, entry.tuned_C, seed)
        spans = (f"{values_C.min():.1f} to {values_C.max():.1f}" for values_C in (entry.features_C, entry.tuned_C))
        of_noise = f"{entry.noise:.1f}"
        table.add_row(entry.dataset, entry.loss, *spans, of_noise, *told(rho, resampled_R), f"{entry.limit:.2f}")
        rhos.append(rho)
        resampled.append(resampled_R)
    table.add_row("mean", "", "", "", "", *told(statistics.fmean(rhos), np.mean(resampled, axis=0)))
    return table


def gained_table(found: list[Measured]) -> Table:
    """Return a table of what the first points in the order by features miss of the best, and what random ones miss."""
    table = Table(title="In the order by features: missing to the best point; trials to one within an SD of it")
    for column in (
        "images", "loss", "first", "random", f"best of first {FINALISTS}",
        f"best of random {FINALISTS}", "default", "trials", "random trials",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    cells = []
    for entry in found:
        ordered_C, tuned_C = entry.ordered_C, entry.tuned_C
        best = tuned_C.max()
        reached = (
            ordered_C[0], tuned_C.mean(), ordered_C[:FINALISTS].max(), expected_best(tuned_C, FINALISTS),
            entry.default[0],
        )  # fmt: skip
        cells.append([*(best - value for value in reached), *trials_to(ordered_C >= best - entry.noise)])
        table.add_row(entry.dataset, entry.loss, *(f"{cell:.1f}" for cell in cells[-1]))
    table.add_row("mean", "", *(f"{cell:.1f}" for cell in np.mean(cells, axis=0)))
    return table


def main() -> None:
    """Measure and print both tables and the cost of a training in each arm."""
    if len(sys.argv) not in (4, 5):
        sys.exit(
            "python -m benchmarks.first_on_features WEIGHTS IMAGES RESULTS [POINTS]: weights of tf_efficientnet_lite0, "
            "a folder with grocery/images and omniglot/images, a folder for the results, and the points a loss."
        )
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    points = int(sys.argv[4]) if len(sys.argv) == 5 else POINTS
    rows = measure(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), points)
    console = Console(width=150)
    found = measured(rows, points)
    console.print(predicted_table(found), gained_table(found))
    for arm in (FEATURES, TUNED):
        seconds = statistics.median(row["cpu_s"] for row in rows if row["arm"] == arm)
        console.print(f"{arm}: {seconds:.1f} s of one core a training (median)")


if __name__ == "__main__":
    main()
