"""What a training costs is measured on a few of its steps, and its epoch has as many as a real one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import draw_folder

from trainables.data.sets.folder import Folder
from trainables.data.store.spec import StoreSpec
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training import cost
from trainables.training.config import TrainingConfig
from trainables.training.cost import Images, measured_costs
from trainables.training.train import train


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_an_epoch_is_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "SECONDS", 0.5)
    dataset = Folder(root=str(draw_folder(tmp_path / "images", classes=10, images=12)))
    names = tuple(dataset.classes())
    whole = TrialSpec(
        loss="proxy_anchor",
        hyperparameters={},
        model=ModelConfig(embedding_dim=8),
        training=TrainingConfig(epochs=1, batch_size=20, images_per_class=5, image_size=16),
        images=StoreSpec(dataset=dataset, class_names=names, short_side=18, cache=str(tmp_path / "cache")),
        train_classes=names[:8],
        validation_classes=names[8:],
        metrics=("recall_at_1", "nmi"),
        objective="recall_at_1",
        seed=0,
        directory=str(tmp_path / "whole"),
    )
    (record,) = train(whole)
    part = replace(whole, train_classes=names[:4], validation_classes=(), directory=str(tmp_path / "part"))
    images = Images(train=(12,) * 8, validation=(12,) * 2)
    (found,) = measured_costs([part], images, threads=1, gpu=False)
    assert found.steps == record["batches"]
    assert found.epoch == found.step * found.steps + found.validation
    assert min(found.step, found.validation) > 0
    assert found.memory > 50_000_000, "PyTorch alone takes more"
    assert found.device_memory is None
    (stack,) = measured_costs([part], images, threads=1, gpu=False, stack=3)
    assert stack.steps == found.steps
    assert stack.epoch > found.epoch, "three trainings take longer than one"
    (unvalidated,) = measured_costs([part], replace(images, validation=()), threads=1, gpu=False)
    assert unvalidated.validation == 0
