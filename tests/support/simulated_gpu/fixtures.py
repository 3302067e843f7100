"""A small folder of images, checks around each test on the simulated GPU, and trainings compared with a CPU's."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.simulated_gpu.streams import FREED_TOO_EARLY, STATE

from spaces.losses import SPACES
from trainables.data.sets.folders import Folder
from trainables.data.store import view
from trainables.data.store.store_spec import StoreSpec
from trainables.models import ModelConfig
from trainables.training.spec import TrialSpec
from trainables.training.train import Training
from trainables.training.training_config import Schedule, TrainingConfig


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


@pytest.fixture(autouse=True)
def nothing_is_freed_too_early() -> Iterator[None]:
    view._resident.clear()
    FREED_TOO_EARLY.clear()
    yield
    assert not FREED_TOO_EARLY, "memory was freed while another stream could still use it"


@pytest.fixture
def gpu_of() -> Iterator[Any]:
    before = dict(vars(STATE))

    def change(**changes: Any) -> None:
        vars(STATE).update(changes)

    yield change
    vars(STATE).update({name: before[name] for name in ("limit", "capability", "debug")})


# Trainings, compared with the same ones on the CPU.

CHOICES = [
    (loss, {name: choice})
    for loss, space in SPACES.items()
    for name, parameter in space.items()
    for choice in getattr(parameter, "choices", ())
    if choice != parameter.default
]
"""Losses with one of their choices that is not the default."""

CPU, GPU = torch.device("cpu"), torch.device("cuda")


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


def trained(spec: TrialSpec, device: torch.device) -> Training:
    training = Training(replace(spec, directory=f"{spec.directory}-{device.type}"), device)
    while not training.finished:
        training.run_epoch()
    return training


def assert_as_on_cpu(spec: TrialSpec, tolerance: float = 1e-3) -> None:
    ours, theirs = trained(spec, GPU), trained(spec, CPU)
    assert {p.device.type for p in (*ours.model.parameters(), *ours.loss.parameters())} == {"cuda"}
    for record, other in zip(ours.records, theirs.records, strict=True):
        assert record["loss"] == pytest.approx(other["loss"], rel=tolerance, abs=1e-5)
        assert record.get("used") == other.get("used")
