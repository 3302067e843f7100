"""Contract of stacks: every row of every table gives the same results in a stack as in separate trainings.

Each member has its own seed, learning rates, decay, gradient bound and real hyperparameters of the loss.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.stacks import CPU, alone, assert_same, member, records_of

from spaces.losses import SPACES
from trainables.data.augment import AUGMENTATIONS
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.data.store.spec import StoreSpec
from trainables.losses import LOSSES, loss_row
from trainables.models import BACKBONES, HEAD_INIT, POOLING, ModelConfig
from trainables.spec import TrialSpec
from trainables.training.config import OPTIMIZERS
from trainables.training.stack import run_epochs, stack_key
from trainables.training.train import Training

pytestmark = pytest.mark.usefixtures("exact")

SMALL = ("convnet",)
BY_LOSS: dict[str, list[dict[str, Any]]] = {
    "triplet": [{"mining": mining} for mining in ("all", "hard", "distance_weighted", "uniform")],
    "lifted_structure": [{"mining": "hard"}],
    "margin": [{"mining": "all"}, {"mining": "all", "distance": "similarity"}],
    "multi_similarity": [{"epsilon": None}],
    "softmax": [{"similarity": "dot", "reduction": "sum"}],
    "soft_triple": [{"proxies_per_class": 1}],
    "mpa": [{"proxies_per_class": 3}],
    "proxy_push": [{"similarity": "data"}],
    "pnp": [{"variant": "Ib"}],
}
"""Hyperparameters that select other code paths than the defaults."""


def real_hyperparameters(loss: str, number: int) -> dict[str, float]:
    """Return the defaults of a loss's real hyperparameters, slightly decreased for each member."""
    defaults = {name: parameter.default for name, parameter in SPACES[loss].items()}
    return {name: value * (1 - 0.1 * number) for name, value in defaults.items() if type(value) is float}


def assert_stacked_as_alone(
    specs: list[TrialSpec], caplog: pytest.LogCaptureFixture, epochs: int = 2, tolerance: float = 1e-9
) -> None:
    assert len({stack_key(spec) for spec in specs}) == 1
    trainings = [Training(spec, CPU) for spec in specs]
    with caplog.at_level(logging.WARNING):
        for _ in range(epochs):
            records_of(run_epochs(trainings))
    assert not [entry for entry in caplog.records if entry.levelno >= logging.WARNING], "they were not one stack"
    for training in trainings:
        training.wait_for_checkpoints()
        assert_same(training, alone(training.spec, epochs), tolerance)


@pytest.mark.parametrize(
    ("loss", "chosen"),
    [(loss, chosen) for loss in LOSSES for chosen in ({}, *BY_LOSS.get(loss, []))],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())) or "defaults",
)
def test_every_loss(
    images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, loss: str, chosen: dict[str, Any]
) -> None:
    specs = [
        member(images, tmp_path, number, loss=loss, hyperparameters={**real_hyperparameters(loss, number), **chosen})
        for number in range(2)
    ]
    assert_stacked_as_alone(specs, caplog)


@pytest.mark.parametrize("loss", [name for name in LOSSES if loss_row(name).of_pairs])
def test_every_loss_with_a_memory(
    images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, loss: str
) -> None:
    settings = {"cross_batch_memory": 0.8, "memory_warmup_epochs": 1}
    params = [real_hyperparameters(loss, number) for number in range(2)]
    specs = [
        member(images, tmp_path, number, loss=loss, hyperparameters=chosen, training=settings)
        for number, chosen in enumerate(params)
    ]
    assert_stacked_as_alone(specs, caplog, epochs=3)


@pytest.mark.parametrize(
    "backbone", [pytest.param(name, marks=pytest.mark.slow if name not in SMALL else ()) for name in BACKBONES]
)
def test_every_backbone(images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, backbone: str) -> None:
    """One step only: deep networks with batch normalisation amplify rounding a thousandfold at each further step."""
    model = ModelConfig(backbone=backbone, embedding_dim=8)
    settings = {"batch_size": 40, "images_per_class": 10, "image_size": 32}
    specs = [member(images, tmp_path, number, model=model, training=settings) for number in range(2)]
    assert_stacked_as_alone(specs, caplog, epochs=1, tolerance=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        *(ModelConfig(embedding_dim=8, pooling=pooling) for pooling, row in POOLING.rows.items() if not row.tokens),
        ModelConfig(embedding_dim=8, freeze_bn=True),
        ModelConfig(embedding_dim=8, freeze_bn="statistics"),
        ModelConfig(embedding_dim=8, layer_norm=True),
        *(ModelConfig(embedding_dim=8, head_init=name) for name in HEAD_INIT),
    ],
    ids=lambda model: f"{model.pooling}-{model.freeze_bn}-{model.layer_norm}-{model.head_init}",
)
def test_every_head(images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, model: ModelConfig) -> None:
    assert_stacked_as_alone([member(images, tmp_path, number, model=model) for number in range(2)], caplog)


@pytest.mark.parametrize(
    "settings",
    [
        *({"optimizer": optimizer} for optimizer in OPTIMIZERS),
        *({"sampler": sampler} for sampler in BATCH_SAMPLERS),
        *({"augment": augment} for augment in AUGMENTATIONS),
    ],
    ids=lambda settings: "-".join(settings.values()),
)
def test_every_optimizer_sampler_and_augmentation(
    images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, Any]
) -> None:
    specs = [member(images, tmp_path, number, training=settings) for number in range(3)]
    assert_stacked_as_alone(specs, caplog)


def test_bfloat16(images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Products are rounded to eight bits, so the curves are similar but not equal."""
    torch.set_default_dtype(torch.float32)
    specs = [member(images, tmp_path, number, training={"precision": "bfloat16"}) for number in range(2)]
    trainings = [Training(spec, CPU) for spec in specs]
    with caplog.at_level(logging.WARNING):
        records = records_of(run_epochs(trainings))
    assert not caplog.records
    for spec, record in zip(specs, records):
        exact_spec = replace(spec, training=replace(spec.training, precision="float32"))
        losses = [alone(version, 1).records[0]["loss"] for version in (spec, exact_spec)]
        assert record["loss"] == pytest.approx(losses[0], rel=0.03)
        assert losses[0] != losses[1], "precision plays no part, so this test says nothing"
