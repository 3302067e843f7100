"""Epochs on the cached features of a frozen backbone, compared with epochs on images.

    python -m benchmarks.features WEIGHTS FOLDER

WEIGHTS is a file for timm's ``tf_efficientnet_lite0``; FOLDER holds one sub-folder of photographs per class. Both train
the same linear head with Proxy-Anchor at 112 pixels on one core: from the cached features, and with the frozen network
on every batch of images (``freeze: ["*"]``).
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace

import torch
from rich.console import Console

from benchmarks.timing import machine
from trainables.data.sets.folders import Folder
from trainables.data.store.store_spec import StoreSpec
from trainables.models import ModelConfig
from trainables.training.spec import TrialSpec
from trainables.training.train import Training
from trainables.training.training_config import TrainingConfig

EPOCHS = {"cached": 10, "images": 2}


def seconds(spec: TrialSpec, epochs: int) -> list[float]:
    """Return the seconds of each of ``epochs`` epochs, without the validation."""
    training = Training(replace(spec, training=replace(spec.training, epochs=epochs)), torch.device("cpu"))
    found = []
    for _ in range(epochs):
        begin = time.perf_counter()
        training.run_epoch()
        found.append(time.perf_counter() - begin)
    training.wait_for_checkpoints()
    return found


def main(weights: str, folder: str) -> None:
    """Print the seconds of an epoch and their ratio."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as path:
        dataset = Folder(root=folder)
        names = tuple(dataset.classes())
        images = StoreSpec(dataset=dataset, class_names=names, short_side=128, cache=f"{path}/cache")
        spec = TrialSpec(
            loss="proxy_anchor",
            hyperparameters={},
            model=ModelConfig(backbone="timm:tf_efficientnet_lite0", weights=weights, freeze="backbone"),
            training=TrainingConfig(image_size=112, batch_size=60, precision="float32"),
            images=images,
            train_classes=names,
            validation_classes=(),
            metrics=("map_at_r",),
            objective="map_at_r",
            seed=0,
            directory=f"{path}/cached",
        )
        cached = statistics.median(seconds(spec, EPOCHS["cached"]))
        whole = replace(spec, model=replace(spec.model, freeze=("*",)), directory=f"{path}/images")
        direct = statistics.median(seconds(whole, EPOCHS["images"]))
    console = Console()
    console.print(machine(torch.device("cpu")))
    console.print(f"an epoch on images {direct:.2f} s, on cached features {cached:.3f} s: {direct / cached:.0f} times")


if __name__ == "__main__":
    main(*sys.argv[1:])
