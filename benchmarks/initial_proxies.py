"""Effect of initialising each loss's proxies as in its authors' code instead of as in Proxy-Anchor's.

    python -m benchmarks.initial_proxies FOLDER [LOSS ...]

Each loss is trained from both initialisations with the same seeds, with its own proxy learning rate and about as many
steps before the rate decays as in the thesis on CUB-200-2011. The first half of the folder's classes is for training,
and the last epoch's model is scored on the other half, which selects nothing. The turn of the proxies is the mean angle
between their initial and final directions; two random proxies are 90° apart.

Shapes: S seeds.
"""

import sys
import tempfile
import time
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.nn.functional import cosine_similarity

from trainables.data import DATASETS
from trainables.data.store.store_spec import StoreSpec
from trainables.losses import LOSSES, loss_row
from trainables.losses.loss import ProxyLoss
from trainables.models.config import ModelConfig
from trainables.training.spec import TrialSpec
from trainables.training.train import Training
from trainables.training.training_config import Schedule, TrainingConfig

SEEDS = 3
ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("proxy_nca", {}),
    ("softmax", {"similarity": "cosine"}),
    ("softmax", {"similarity": "dot"}),
    ("arcface", {}),
    ("soft_triple", {}),
)
TRAINING = TrainingConfig(
    epochs=12, batch_size=40, images_per_class=4, image_size=32, schedule=Schedule(step=10, gamma=0.1)
)
METRIC = "recall_at_1"


def trained(spec: TrialSpec, authors: bool) -> tuple[float, float]:
    """Train, and return Recall@1 on the other classes and the mean turn of the proxies in degrees."""
    with tempfile.TemporaryDirectory() as folder:
        return _trained(replace(spec, directory=folder), authors)


def _trained(spec: TrialSpec, authors: bool) -> tuple[float, float]:
    loss = LOSSES[spec.loss]
    assert issubclass(loss, ProxyLoss)
    begins = loss.initial_proxies if authors else ProxyLoss.initial_proxies
    with patch.object(loss, "initial_proxies", staticmethod(begins)):
        training = Training(spec, torch.device("cpu"))
    assert isinstance(training.loss, ProxyLoss)
    before_CKD = training.loss.proxies.detach().clone()
    while not training.finished:
        record = training.run_epoch()
    cosines_CK = cosine_similarity(before_CKD, training.loss.proxies.detach(), dim=-1).clamp(-1, 1)
    return record["metrics"][METRIC], cosines_CK.acos().rad2deg().mean().item()


def told(values_S: np.ndarray) -> str:
    """Format the mean ± sample standard deviation."""
    return f"{values_S.mean():.1f} ± {values_S.std(ddof=1):.1f}"


def main(source: str, *losses: str) -> None:
    """Train all or the named losses, and print one row per loss."""
    dataset = DATASETS["folder"](root=source)
    names = tuple(dataset.classes())
    half = len(names) // 2
    begin = time.perf_counter()
    table = Table()
    for column in (
        "loss",
        "proxy_lr",
        "turn, as Proxy-Anchor",
        "as its authors",
        "Recall@1, as Proxy-Anchor",
        "as its authors",
        "Δ",
    ):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        images = StoreSpec(
            dataset=dataset, class_names=names, short_side=TRAINING.frame.short_side, cache=f"{folder}/cache"
        )
        rows = [row for row in ROWS if not losses or row[0] in losses]
        for loss, hyperparameters in track(rows, console=Console(stderr=True)):
            specs = [
                TrialSpec(
                    loss=loss,
                    hyperparameters=hyperparameters,
                    model=ModelConfig(),
                    training=TRAINING,
                    images=images,
                    train_classes=names[:half],
                    validation_classes=names[half:],
                    metrics=(METRIC,),
                    objective=METRIC,
                    seed=seed,
                    directory="",
                )
                for seed in range(SEEDS)
            ]
            found_2S2 = np.array([[trained(spec, authors) for spec in specs] for authors in (False, True)])
            recalls_2S, turns_2S = 100 * found_2S2[..., 0], found_2S2[..., 1]
            table.add_row(
                " ".join((loss, *hyperparameters.values())),
                f"{loss_row(loss).proxy_lr:g}",
                told(turns_2S[0]),
                told(turns_2S[1]),
                told(recalls_2S[0]),
                told(recalls_2S[1]),
                told(recalls_2S[1] - recalls_2S[0]),
            )
    table.title = (
        f"{source}: {half} classes train, {len(names) - half} are scored; {TRAINING.epochs} epochs, {SEEDS} seeds; "
        f"{time.perf_counter() - begin:.0f} s"
    )
    Console(width=120).print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
