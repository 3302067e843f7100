"""Small trainings in float64, and comparisons of two of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from support.small_training import run, small_spec, with_training

from trainables.data.store.store_spec import StoreSpec
from trainables.training.spec import TrialSpec
from trainables.training.train import Training

CPU = torch.device("cpu")


@contextmanager
def float64() -> Iterator[None]:
    """Create networks in float64, so that differences are errors and not rounding.

    In float32 Adam takes full steps along gradients that are only rounding noise.
    """
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def exact_spec(images: StoreSpec, directory: Path, **changes: Any) -> TrialSpec:
    """Return a spec in which four classes train and two validate."""
    spec = small_spec(images, directory, epochs=3)
    training = {"head_lr": 2e-3, "weight_decay": 0.0, "clip_grad": 0.05, **changes.pop("training", {})}
    classes = {"train_classes": images.class_names[:4], "validation_classes": images.class_names[4:]}
    return replace(with_training(spec, **training), **{**classes, **changes})


def trained_apart(spec: TrialSpec, epochs: int) -> Training:
    """Train ``spec`` for ``epochs`` epochs in another folder than its own."""
    training: Training = run(replace(spec, directory=f"{spec.directory}-apart"), epochs)
    return training


def assert_same(training: Training, reference: Training, tolerance: float = 1e-9) -> None:
    """Assert equal weights, running statistics, optimizer state, learning rates and records."""
    for module, other in ((training.model, reference.model), (training.loss, reference.loss)):
        torch.testing.assert_close(module.state_dict(), other.state_dict(), rtol=tolerance, atol=tolerance)
        buffers, others = dict(module.named_buffers()), dict(other.named_buffers())
        torch.testing.assert_close(buffers, others, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(
        training.optimizer.state_dict(), reference.optimizer.state_dict(), rtol=tolerance, atol=tolerance
    )
    assert len(training.records) == len(reference.records)
    for record, other_record in zip(training.records, reference.records):
        for name in ("epoch", "batches", "checkpoint", "used"):
            assert record.get(name) == other_record.get(name), name
        torch.testing.assert_close(record["loss"], other_record["loss"], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(record["metrics"], other_record["metrics"], rtol=0, atol=1e-4)
