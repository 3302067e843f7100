"""Effect of the scales of lifted structure and Proxy-NCA, which their equations omit and the papers' codes have.

    python -m benchmarks.loss_scales FOLDER

Prints the effective number of competitors of random unit vectors, 1 / Σ p² over the softmax p of their similarities,
and MAP@R after training with each setting. A half of the training classes validates; no test class is read.

Shapes: A anchors, N competitors.
"""

import sys
import tempfile
import time
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from trainables.data import DATASETS
from trainables.data.split import split_dataset
from trainables.data.store.store_spec import StoreSpec
from trainables.models.config import ModelConfig
from trainables.training.spec import TrialSpec
from trainables.training.train import Training
from trainables.training.training_config import Schedule, TrainingConfig

SEEDS = 3
D = 512
NEGATIVES = 175  # of a batch of 180 with five images per class
OTHERS = 99  # proxies of the other classes on CUB-200-2011
LIFTED = {"mining": "hard", "margin": 2.0}  # a margin of 2 turns [.]_+ off
ROWS: tuple[tuple[str, str, dict[str, Any], float, int], ...] = (
    ("lifted_structure", "eq. 2.21", {}, 1, NEGATIVES),
    ("lifted_structure", "eq. 2.21, hard", {"mining": "hard"}, 1, NEGATIVES),
    ("lifted_structure", "Sampling Wisely's code", {**LIFTED, "pos_scale": 10.0, "neg_scale": 10.0}, 10, NEGATIVES),
    ("lifted_structure", "the thesis's code", {**LIFTED, "pos_scale": 2.0, "neg_scale": 40.0}, 40, NEGATIVES),
    ("proxy_nca", "eq. 2.27", {}, 1, OTHERS),
    ("proxy_nca", "squared distances", {"scale": 2.0}, 2, OTHERS),
    ("proxy_nca", "dichotomies/proxy-nca", {"scale": 18.0}, 18, OTHERS),
    ("proxy_nca", "the thesis's code", {"scale": 64.0}, 64, OTHERS),
)
TRAINING = TrainingConfig(
    epochs=12, batch_size=40, images_per_class=4, image_size=32, schedule=Schedule(step=10, gamma=0.1)
)
METRIC = "map_at_r"


def competitors(scale: float, count: int) -> float:
    """Compute the mean effective number of ``count`` competitors of a random unit vector."""
    generator = torch.Generator().manual_seed(0)
    unit_ND, anchors_AD = (
        torch.nn.functional.normalize(torch.randn(size, D, generator=generator, dtype=torch.float64))
        for size in (count, 1000)
    )
    weights_AN = (scale * anchors_AD @ unit_ND.T).softmax(1)
    return (1 / weights_AN.square().sum(1)).mean().item()


def trained(spec: TrialSpec) -> float:
    """Train, and return the last epoch's score on the validation classes, in per cent."""
    training = Training(spec, torch.device("cpu"))
    while not training.finished:
        record = training.run_epoch()
    return 100 * record["metrics"][METRIC]


def main(source: str) -> None:
    """Print one row per setting."""
    dataset = DATASETS["folder"](root=source)
    split = split_dataset(dataset, dataset.classes(), ratio=0.5, seed=0)
    begin = time.perf_counter()
    table = Table()
    for column in ("loss", "setting", "effective competitors", "MAP@R"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        images = StoreSpec(
            dataset=dataset,
            class_names=(*split.train, *split.validation),
            short_side=TRAINING.frame.short_side,
            cache=f"{folder}/cache",
        )
        for row, (loss, setting, params, scale, count) in enumerate(track(ROWS, console=Console(stderr=True))):
            scores_S = np.array(
                [
                    trained(
                        TrialSpec(
                            loss=loss,
                            hyperparameters=params,
                            model=ModelConfig(),
                            training=TRAINING,
                            images=images,
                            train_classes=split.train,
                            validation_classes=split.validation,
                            metrics=(METRIC,),
                            objective=METRIC,
                            seed=seed,
                            directory=f"{folder}/{row}-{seed}",
                        )
                    )
                    for seed in range(SEEDS)
                ]
            )
            table.add_row(
                loss,
                setting,
                f"{competitors(scale, count):.1f} of {count}",
                f"{scores_S.mean():.1f} ± {scores_S.std(ddof=1):.1f}",
            )
    table.title = (
        f"{source}: {len(split.train)} classes train, {len(split.validation)} validate; {TRAINING.epochs} epochs, "
        f"{SEEDS} seeds; {time.perf_counter() - begin:.0f} s"
    )
    Console(width=120).print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
