"""A short training on drawn images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from support.small_search import draw_folder

from trainables.data.sets.folders import Folder
from trainables.data.store.store_spec import StoreSpec
from trainables.models import ModelConfig
from trainables.training.attempt import Worker
from trainables.training.cross_validation import begin
from trainables.training.spec import TrialSpec
from trainables.training.training_config import TrainingConfig


def drawn_images(path: Path, classes: int = 6) -> StoreSpec:
    """Write classes of noise images below ``path``."""
    dataset = Folder(root=str(draw_folder(path / "images", classes=classes)))
    return StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=18, cache=str(path / "cache"))


def small_spec(images: StoreSpec, directory: Path, *, epochs: int, **changes: Any) -> TrialSpec:
    """Return a spec that trains on all classes; without validation every epoch is the best so far."""
    return TrialSpec(
        loss="mpa",
        hyperparameters={"proxies_per_class": 2},
        model=ModelConfig(embedding_dim=8),
        training=TrainingConfig(epochs=epochs, batch_size=20, images_per_class=5, image_size=16),
        images=images,
        train_classes=images.class_names,
        validation_classes=(),
        metrics=("map_at_r",),
        objective="map_at_r",
        seed=7,
        directory=str(directory / "trial"),
        **changes,
    )


def with_training(spec: TrialSpec, **changes: Any) -> TrialSpec:
    return replace(spec, training=replace(spec.training, **changes))


def run(spec: TrialSpec, epochs: int | None = None) -> Any:
    """Begin or resume the training of ``spec``, train epochs of it, by default all, and return it with its files."""
    training = begin(spec, torch.device("cpu"))
    for _ in range(spec.epochs if epochs is None else epochs):
        if not training.finished:
            training.run_epoch()
    training.wait_for_checkpoints()
    return training


def worker_of(spec: TrialSpec) -> Worker:
    """Return a worker with an attempt at ``spec``, on one CPU thread."""
    worker = Worker(cpus=1, gpu=False)
    worker.assign(spec)
    return worker
