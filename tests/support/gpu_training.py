"""A small folder of images, and a training on it that takes seconds on any device."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from trainables.data.sets.folders import Folder
from trainables.data.store.store_spec import StoreSpec
from trainables.models import ModelConfig
from trainables.training.spec import TrialSpec
from trainables.training.training_config import Schedule, TrainingConfig

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    """Return six classes of ten images of several sizes, each class with its own colour."""
    path = tmp_path_factory.mktemp("simulated")
    random = np.random.default_rng(0)
    for number in range(60):
        pixels = random.integers(0, 128, (*random.integers(36, 50, 2), 3)) + random.permutation([0, 60, 127])
        file = path / "images" / f"class-{number % 6}" / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(file)
    dataset = Folder(root=str(path / "images"))
    return StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=36, cache=str(path / "cache"))


def spec_of(images: StoreSpec, path: Path, **changes: Any) -> TrialSpec:
    """Return two epochs of a small network in float32 on four of six classes; ``training`` changes its settings."""
    training = TrainingConfig(
        epochs=2, batch_size=12, images_per_class=3, image_size=32, warmup_epochs=1,
        schedule=Schedule(step=1), precision="float32", compile=None,
    )  # fmt: skip
    spec = TrialSpec(
        loss="mpa", hyperparameters={}, model=ModelConfig(embedding_dim=8), training=training, images=images,
        train_classes=images.class_names[:4], validation_classes=images.class_names[4:], metrics=("map_at_r",),
        objective="map_at_r", seed=7, directory=str(path / "trial"),
    )  # fmt: skip
    changes["training"] = replace(training, **changes.pop("training", {}))
    return replace(spec, **changes)
