"""Costs measured on a few steps, with the number of steps of a real epoch."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.small_search import draw_folder

from trainables.data.sets.folders import Folder
from trainables.data.store.spec import StoreSpec
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training import cost
from trainables.training.config import Schedule, TrainingConfig
from trainables.training.cost import Images, measured_costs
from trainables.training.train import Training, train


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def whole(tmp_path: Path) -> TrialSpec:
    dataset = Folder(root=str(draw_folder(tmp_path / "images", classes=10, images=12)))
    names = tuple(dataset.classes())
    return TrialSpec(
        loss="proxy_anchor",
        hyperparameters={},
        model=ModelConfig(embedding_dim=8),
        training=TrainingConfig(epochs=1, batch_size=20, images_per_class=5, image_size=16, augment="none"),
        images=StoreSpec(dataset=dataset, class_names=names, short_side=18, cache=str(tmp_path / "cache")),
        train_classes=names[:8],
        validation_classes=names[8:],
        metrics=("recall_at_1", "nmi"),
        objective="recall_at_1",
        seed=0,
        directory=str(tmp_path / "whole"),
    )


def test_an_epoch_is_foreseen(whole: TrialSpec, tmp_path: Path) -> None:
    (record,) = train(whole)
    classes = whole.train_classes[:4]
    part = replace(whole, train_classes=classes, validation_classes=(), directory=str(tmp_path / "part"))
    images = Images(train=(12,) * 8, validation=(12,) * 2)
    (found,) = measured_costs([part], images, threads=1, gpu=False, seconds=0.5)
    assert found.steps == record["batches"]
    assert found.epoch == found.step * found.steps + found.validation
    assert min(found.step, found.validation) > 0
    assert found.memory > 50_000_000, "PyTorch alone takes more"
    assert found.device_memory is None
    (stack,) = measured_costs([part], images, threads=1, gpu=False, stack=3, seconds=0.5)
    assert stack.steps == found.steps
    (unvalidated,) = measured_costs([part], replace(images, validation=()), threads=1, gpu=False, seconds=0.5)
    assert unvalidated.validation == 0


def test_the_step_of_a_fine_tuning_is_that_of_its_last_epochs(whole: TrialSpec, tmp_path: Path) -> None:
    """The backbone learns and averages are taken, alone and in a stack."""
    settings = {"warmup_epochs": 1, "memory_warmup_epochs": 0, "ema": 0.9, "schedule": Schedule(decay="cosine")}
    spec = replace(whole, training=replace(whole.training, **settings))
    images = Images(train=(12,) * 8, validation=(12,) * 2)
    for stack in (1, 2):
        part = replace(spec, validation_classes=(), directory=str(tmp_path / f"stack-{stack}"))
        (found,) = measured_costs([part], images, threads=1, gpu=False, stack=stack, seconds=0)
        assert found.step > 0
    training = Training(spec, torch.device("cpu"))
    cost._step_of([training])
    assert all(parameter.requires_grad for parameter in training.model.parameters())


def test_a_step_of_a_stack_is_one_of_every_member(whole: TrialSpec, tmp_path: Path) -> None:
    def trainings() -> list[Training]:
        specs = [replace(whole, seed=seed, directory=str(tmp_path / str(seed))) for seed in range(3)]
        return [Training(spec, torch.device("cpu")) for spec in specs]

    (indices_B, *_) = trainings()[0].sampler.batches(1)
    alone = [cost._step_of([training])(indices_B).item() for training in trainings()]
    assert cost._step_of(trainings())(indices_B).item() == pytest.approx(sum(alone), rel=1e-5)
    assert len(set(alone)) == 3
