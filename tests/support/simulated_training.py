"""Trainings on the simulated GPU, compared with the same trainings on the CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from trainables.data.store.spec import StoreSpec
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training.config import Schedule, TrainingConfig
from trainables.training.train import Training

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def spec_of(images: StoreSpec, path: Path, **changes: Any) -> TrialSpec:
    """Return two epochs of a small network in float32 on four of six classes; ``training`` changes its settings."""
    training = TrainingConfig(
        epochs=2, batch_size=12, images_per_class=3, image_size=32, warmup_epochs=1,
        schedule=Schedule(step=1), precision="float32", compile=None,
    )  # fmt: skip
    spec = TrialSpec(
        loss="mpa", hyperparameters={}, model=ModelConfig(embedding_dim=8), training=training, images=images,
        train_classes=images.class_names[:4], validation_classes=images.class_names[4:], metrics=("map_at_r", "nmi"),
        objective="map_at_r", seed=7, directory=str(path / "trial"),
    )  # fmt: skip
    changes["training"] = replace(training, **changes.pop("training", {}))
    return replace(spec, **changes)


def trained(spec: TrialSpec, device: torch.device) -> Training:
    """Train all epochs on ``device``, in a directory of its own."""
    training = Training(replace(spec, directory=f"{spec.directory}-{device.type}"), device)
    while not training.finished:
        training.run_epoch()
    return training


def assert_as_on_cpu(spec: TrialSpec, tolerance: float = 1e-3) -> None:
    """Train on both devices, and compare the losses of all epochs."""
    ours, theirs = trained(spec, GPU), trained(spec, CPU)
    assert {p.device.type for p in (*ours.model.parameters(), *ours.loss.parameters())} == {"cuda"}
    for record, other in zip(ours.records, theirs.records, strict=True):
        assert record["loss"] == pytest.approx(other["loss"], rel=tolerance, abs=1e-5)
        assert record.get("used") == other.get("used")
