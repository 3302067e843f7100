"""Layer-wise learning rates and gradual unfreezing."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exact_training import CPU, assert_resumed, exact_spec, trained_apart

from search.config.search_config import parse_config
from trainables.data.store.spec import StoreSpec
from trainables.mistakes import Mistakes
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training.config import TrainingConfig
from trainables.training.train import Training

pytestmark = pytest.mark.usefixtures("exact")

SETTINGS = {"epochs": 4, "warmup_epochs": 1, "unfreeze_epochs": 1, "layer_decay": 0.5, "lr": 1e-3, "head_lr": 4e-3}
STAGES = ("blocks.11", "blocks.7", "blocks.3", "blocks.0")
"""The convolutions of the built-in network, from the top."""


def spec_of(images: StoreSpec, path: Path, **changes: Any) -> TrialSpec:
    spec = exact_spec(images, path, training={**SETTINGS, **changes.pop("training", {})})
    return replace(spec, **changes)


def moved(training: Training) -> set[str]:
    """Train an epoch and return the convolutions of the backbone that it changed."""
    before = {name: value.clone() for name, value in training.model.backbone.named_parameters()}
    training.run_epoch()
    changed = {
        name for name, value in training.model.backbone.named_parameters() if not torch.equal(value, before[name])
    }
    return {name.removesuffix(".weight") for name in changed} & set(STAGES)


def test_stages_begin_to_learn_from_the_top(
    images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The running statistics of waiting stages follow the batches."""
    with caplog.at_level(logging.INFO, logger="trainables"):
        training = Training(spec_of(images, tmp_path), CPU)
    assert "blocks.11 (0.0005, epoch 2), blocks.7 (0.00025, epoch 3), blocks.3 (0.000125, epoch 4)" in caplog.text
    means = training.model.backbone.blocks[1].running_mean.clone()
    assert [moved(training) for _ in range(4)] == [set(STAGES[:number]) for number in range(4)]
    assert not torch.equal(means, training.model.backbone.blocks[1].running_mean)


def test_each_stage_has_its_rate(images: StoreSpec, tmp_path: Path) -> None:
    training = Training(spec_of(images, tmp_path), CPU)
    rates = {id(p): group["lr"] for group in training.optimizer.param_groups for p in group["params"]}
    convolutions = dict(training.model.backbone.named_parameters())
    for depth, name in enumerate(STAGES, start=1):
        assert rates[id(convolutions[f"{name}.weight"])] == pytest.approx(1e-3 * 0.5**depth)
    assert {rates[id(p)] for p in training.model.head_parameters()} == {4e-3}


def test_frozen_stages_are_skipped_and_still_counted(images: StoreSpec, tmp_path: Path) -> None:
    model = ModelConfig(embedding_dim=8, freeze=("blocks.7.*", "blocks.8.*", "blocks.0.*", "blocks.1.*"))
    training = Training(spec_of(images, tmp_path, model=model), CPU)
    found = [(stage.name, stage.begins, stage.lr) for stage in training.stages]
    assert found == [("blocks.11", 2, pytest.approx(5e-4)), ("blocks.3", 3, pytest.approx(1.25e-4))]


def test_it_resumes_between_two_stages(images: StoreSpec, tmp_path: Path) -> None:
    spec = spec_of(images, tmp_path)
    for _ in range(2):
        training = Training(spec, CPU)
        for _ in range(2):
            training.run_epoch()
        training.wait_for_checkpoints()
    reference = trained_apart(spec, 4)
    assert_resumed(training, reference)


def test_wrong_values_are_refused() -> None:
    with pytest.raises(Mistakes) as caught:
        TrainingConfig(layer_decay=0, unfreeze_epochs=-1)
    assert caught.value.sentences == (
        "layer_decay must be in (0, 1], where 1 is none; it is 0.",
        "unfreeze_epochs must be at least 0, where 0 is all stages at once; it is -1.",
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"layer_decay": 0.5}},
        {"training_by_loss": {"mpa": {"unfreeze_epochs": 1}}},
        {"space": {"training": {"layer_decay": [0.5, 1.0]}}},
        {"space": {"mpa": {"training": {"unfreeze_epochs": [0, 1]}}}},
    ],
)
def test_without_stages_that_learn_they_are_refused(changes: dict[str, Any]) -> None:
    content = {"name": "birds", "dataset": {"name": "glyphs"}, "losses": ["mpa"], **changes}
    parse_config(content)
    frozen = {"backbone": "resnet18", "weights": "imagenet", "freeze": "backbone"}
    with pytest.raises(Mistakes, match=r"layer_decay and training\.unfreeze_epochs concern the stages of a back"):
        parse_config({**content, "model": frozen})
