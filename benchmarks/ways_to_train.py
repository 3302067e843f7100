"""Ways to train a pretrained network for the same time.

    python -m benchmarks ways WEIGHTS IMAGES RESULTS [SECONDS [NETWORK SIDE]]

Each way trains Proxy-Anchor for as many epochs as fit into SECONDS (default 120) of computing. Half of the training
classes choose a learning rate that is better than its neighbours, with one seed; three seeds with it learn from all
training classes, and the last epoch's model is scored on the other half of the folder's classes, which chooses nothing.
At most 30 images of a class are used. WEIGHTS is a file for NETWORK (default ``timm:tf_efficientnet_lite0``), which
sees squares of SIDE pixels (default 80). Seconds are those of the process on one thread, which other processes hardly
change. Results are appended to ``ways.jsonl`` in the folder RESULTS, where an interrupted measurement is resumed.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.first_on_features import linked
from benchmarks.json_lines import append_lines, read_lines
from trainables.data.split import split_dataset
from trainables.data.store.store_spec import StoreSpec
from trainables.metrics.evaluation import evaluate
from trainables.models.config import BACKBONE, Lora, ModelConfig
from trainables.training.epoch_training import Diverged
from trainables.training.inputs import Inputs
from trainables.training.spec import TrialSpec
from trainables.training.train import train
from trainables.training.training_config import Schedule, TrainingConfig

SECONDS, SEEDS, MOST_EPOCHS = 120.0, 3, 40
CLASSES, PER_CLASS = 1000, 30
UNTRAINED = "untrained"
METRICS = ("map_at_r", "recall_at_1")
NETWORK, SIDE = "timm:tf_efficientnet_lite0", 80
TRAINING = TrainingConfig(
    batch_size=60, images_per_class=5, image_size=SIDE, augment="crop", head_lr=1e-3, schedule=Schedule(decay="cosine")
)
RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
WAYS: dict[str, tuple[dict[str, Any], TrainingConfig]] = {
    "frozen features": ({"freeze": BACKBONE}, replace(TRAINING, head_lr=None)),
    "LoRA, rank 8": ({"lora": Lora(rank=8), "freeze_bn": True}, TRAINING),
    "last block": ({"freeze": "all_but_1", "freeze_bn": True}, TRAINING),
    "last four blocks": ({"freeze": "all_but_4", "freeze_bn": True}, TRAINING),
    "whole": ({"freeze_bn": True}, TRAINING),
    "whole, layer_decay 0.8": ({"freeze_bn": True}, replace(TRAINING, layer_decay=0.8)),
}


def trained(spec: TrialSpec) -> tuple[dict[str, float], float]:
    """Train and return the last epoch's metrics, and the seconds; 0 if the training diverged."""
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            last = list(train(replace(spec, directory=folder)))[-1]["metrics"]
        except Diverged:
            last = dict.fromkeys(METRICS, 0.0)
    return last, time.process_time() - begin  # type: ignore[return-value]


def untrained(spec: TrialSpec) -> dict[str, float]:
    """Return the metrics of the pooled features of the initial network on the validation classes."""
    inputs = Inputs(spec.images, spec.model, spec.training, torch.device("cpu"))
    view = inputs.view(spec.validation_classes)
    return evaluate(inputs.features()[view.rows_N], view.labels_N, list(METRICS))


def better_than_its_neighbours(value_of: Callable[[int], float]) -> int:
    """Return the place of a rate whose value is not below those of its neighbours, from the middle uphill."""
    place = len(RATES) // 2
    while (best := max({place, max(place - 1, 0), min(place + 1, len(RATES) - 1)}, key=value_of)) != place:
        place = best
    return place


def measure(weights: str, images: Path, results: Path, seconds: float, network: str, side: int) -> list[dict[str, Any]]:
    """Train what is missing in ``results``; return the row of the network before, and those of the final trainings."""
    file = results / "ways.jsonl"
    results.mkdir(parents=True, exist_ok=True)
    known = {row["key"]: row for row in read_lines(file)}

    def once(way: str, what: str, spec: TrialSpec) -> dict[str, Any]:
        key = f"{way}, {what}, {spec.digest}"
        if key not in known:
            metrics, took = trained(spec)
            known[key] = {"key": key, "way": way, "epochs": spec.epochs, "lr": spec.training.lr, "s": took, **metrics}
            append_lines(file, [known[key]])
        return known[key]

    found = []
    with tempfile.TemporaryDirectory() as folder:
        source = linked(images, Path(folder) / "images", CLASSES, PER_CLASS)
        split = split_dataset(source, source.classes(), ratio=0.5, seed=0)
        for way, (changes, training) in WAYS.items():
            model = ModelConfig(backbone=network, weights=weights, embedding_dim=512, **changes)
            training = replace(training, image_size=side)
            spec = TrialSpec(
                loss="proxy_anchor", hyperparameters={}, model=model, training=training,
                images=StoreSpec(
                    dataset=source, class_names=tuple(source.classes()), short_side=training.frame.short_side,
                    cache=f"{folder}/cache",
                ),
                train_classes=split.train, validation_classes=split.validation, metrics=METRICS, objective=METRICS[0],
                seed=0, directory="",
            )  # fmt: skip
            both = (*split.train, *split.validation)
            whole = replace(spec, train_classes=both, validation_classes=split.test)
            once(way, "first", replace(whole, training=replace(training, epochs=1)))  # decodes, and computes features
            first, third = (
                once(way, "pace", replace(whole, training=replace(training, epochs=n)))["s"] for n in (1, 3)
            )
            epochs = max(1, min(MOST_EPOCHS, 1 + round((seconds - first) / ((third - first) / 2))))
            if model.freeze == BACKBONE:
                found.append({"way": UNTRAINED, "lr": 0.0, "epochs": 0, "s": 0.0, **untrained(whole)})
            by_rate = [replace(training, epochs=epochs, lr=lr) for lr in RATES]
            best = better_than_its_neighbours(
                lambda place: once(way, "rate", replace(spec, training=by_rate[place]))[METRICS[0]]  # noqa: B023
            )
            found += [once(way, "final", replace(whole, training=by_rate[best], seed=n)) for n in range(SEEDS)]
    return found


def main(
    weights: str, images: str, results: str, seconds: str = str(SECONDS),
    network: str = NETWORK, side: str = str(SIDE),
) -> None:  # fmt: skip
    """Print the mean of the seeds by way."""
    rows = measure(weights, Path(images), Path(results), float(seconds), network, int(side))
    table = Table("way", "lr", "epochs", "seconds", *(f"{metric}, %" for metric in METRICS))
    for way in (UNTRAINED, *WAYS):
        of_way = [row for row in rows if row["way"] == way]
        values = [[100 * row[metric] for row in of_way] for metric in METRICS]
        spreads = [f" ± {statistics.stdev(of_metric):.1f}" if len(of_metric) > 1 else "" for of_metric in values]
        means = [f"{statistics.fmean(of_metric):.1f}" for of_metric in values]
        took = statistics.fmean(row["s"] for row in of_way)
        cells = map("".join, zip(means, spreads, strict=True))
        table.add_row(way, f"{of_way[0]['lr']:g}", str(of_way[0]["epochs"]), f"{took:.0f}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
