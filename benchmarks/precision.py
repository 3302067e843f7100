"""Difference in metrics between training in bfloat16 and in float32.

    python -m benchmarks.precision FOLDER [SEEDS]

Each loss is trained in both precisions with the same seeds, hence the same initial weights and batches. The first half
of the folder's classes is for training, and the last epoch's model is scored on the other half, embedded in float32 as
in a search's test; it selects nothing. The models trained in float32 are also embedded in bfloat16, which shows the
error of a validation in bfloat16.

Shapes: S seeds.
"""

import sys
import tempfile
import time
from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.timing import best_device
from search.results.statistics import over_seeds
from trainables.data import DATASETS
from trainables.data.store.store_spec import StoreSpec
from trainables.data.store.view import StoreView
from trainables.metrics.evaluation import evaluate
from trainables.models.config import ModelConfig
from trainables.models.embedding import embed
from trainables.training.spec import TrialSpec
from trainables.training.train import Training
from trainables.training.training_config import TrainingConfig

LOSSES = ("proxy_anchor", "multi_similarity")
SEEDS = 6
METRICS = ("recall_at_1", "map_at_r")
TRAINING = TrainingConfig(epochs=6, batch_size=40, images_per_class=4, image_size=20)


def scored(training: Training, view: StoreView, precision: str) -> list[float]:
    """Return the metrics of the held-out images in percent."""
    embeddings_ND = embed(
        training.model, view, TRAINING.frame, batch_size=200, device=training.device, precision=precision
    )
    values = evaluate(embeddings_ND, view.labels_N, METRICS)
    return [100 * values[name] for name in METRICS]


def trained(spec: TrialSpec, precision: str, device: torch.device) -> Training:
    """Train all epochs."""
    with tempfile.TemporaryDirectory() as folder:
        training = Training(replace(spec, directory=folder, training=replace(TRAINING, precision=precision)), device)
        while not training.finished:
            training.run_epoch()
    return training


def told(differences_S: np.ndarray) -> str:
    """Format the mean of paired differences and its 95 % interval by Student's t."""
    found = over_seeds(differences_S.tolist())
    low, high = found.ci95 or (float("nan"),) * 2  # there is none for one seed
    return f"{found.mean:+.2f}  [{low:+.2f}, {high:+.2f}]"


def main(source: str, seeds: int = SEEDS) -> None:
    """Train all, and print one row per loss and metric."""
    device = best_device()
    dataset = DATASETS["folder"](root=source)
    names = tuple(dataset.classes())
    half = len(names) // 2
    begin = time.perf_counter()
    table = Table()
    for column in ("loss", "metric, %", "float32", "bfloat16 − float32", "only embedded in bfloat16"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        images = StoreSpec(
            dataset=dataset, class_names=names, short_side=TRAINING.frame.short_side, cache=f"{folder}/cache"
        )
        view = images.open().subset(names[half:])
        for loss in LOSSES:
            found: list[list[list[float]]] = []
            for seed in track(range(seeds), loss, console=Console(stderr=True)):
                spec = TrialSpec(
                    loss=loss,
                    hyperparameters={},
                    model=ModelConfig(),
                    training=TRAINING,
                    images=images,
                    train_classes=names[:half],
                    validation_classes=(),
                    metrics=METRICS,
                    objective=METRICS[0],
                    seed=seed,
                    directory="",
                )
                full, lower = (trained(spec, precision, device) for precision in ("float32", "bfloat16"))
                found.append(
                    [scored(full, view, "float32"), scored(lower, view, "float32"), scored(full, view, "bfloat16")]
                )
            values_S3M = np.array(found)
            for number, metric in enumerate(METRICS):
                full_S, lower_S, embedded_S = values_S3M[:, :, number].T
                table.add_row(
                    loss,
                    metric,
                    f"{full_S.mean():.2f} ± {full_S.std(ddof=1):.2f}",
                    told(lower_S - full_S),
                    told(embedded_S - full_S),
                )
    table.title = (
        f"{source}: {half} classes train, {len(names) - half} are scored; {TRAINING.epochs} epochs, {seeds} seeds, "
        f"{device.type}; {time.perf_counter() - begin:.0f} s"
    )
    Console(width=120).print(table)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
