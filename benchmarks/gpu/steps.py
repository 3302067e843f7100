"""Training steps of ``trainables/training/train.py`` on batches from any source."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.sizes import Sizes
from trainables.data.store.spec import StoreSpec
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training.config import TrainingConfig
from trainables.training.train import LateValue, Training

Batch = tuple[Tensor, Tensor]
"""Images and labels."""


def training_of(
    network: str, images: StoreSpec, sizes: Sizes, directory: str, device: torch.device, **settings: Any
) -> Training:
    """Return a training with Proxy Anchor and without validation; ``settings`` are keys of ``training``."""
    spec = TrialSpec(
        loss="proxy_anchor",
        hyperparameters={},
        model=ModelConfig(backbone=network, embedding_dim=512, freeze_bn=True),
        training=TrainingConfig(
            batch_size=sizes.batch,
            sampler="random",
            image_size=sizes.side,
            resize_size=sizes.short_side,
            **settings,
        ),
        images=images,
        train_classes=images.class_names,
        validation_classes=(),
        metrics=(),
        objective="recall_at_1",
        seed=0,
        directory=directory,
    )
    return Training(spec, device)


def still_batch(sizes: Sizes, device: torch.device) -> Batch:
    """Return a batch that is already on the device."""
    return torch.rand(sizes.batch, 3, sizes.side, sizes.side, device=device), torch.arange(
        sizes.batch, device=device
    ) % 8


def take_steps(training: Training, batches: Iterator[Batch], steps: int) -> None:
    """Take ``steps`` steps, reading each loss one step late, as in an epoch."""
    before: LateValue | None = None
    for _ in range(steps):
        late = LateValue(training.step(*next(batches)))
        if before is not None:
            before.read()
        before = late
