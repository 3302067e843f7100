"""Costs measured on a few steps, with the number of steps of a real epoch."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.small_search import draw_folder
from support.small_training import small_spec

from trainables.data.sets.folders import Folder
from trainables.data.store.spec import StoreSpec
from trainables.spec import TrialSpec
from trainables.training.cost import ImageCounts, measured_costs
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
    images = StoreSpec(dataset=dataset, class_names=names, short_side=18, cache=str(tmp_path / "cache"))
    spec = small_spec(images, tmp_path, epochs=1)
    return replace(
        spec, loss="proxy_anchor", hyperparameters={}, training=replace(spec.training, augment="none"),
        train_classes=names[:8], validation_classes=names[8:], metrics=("recall_at_1", "nmi"), objective="recall_at_1",
    )  # fmt: skip


def test_an_epoch_is_foreseen(whole: TrialSpec, tmp_path: Path) -> None:
    (record,) = train(whole)
    classes = whole.train_classes[:4]
    part = replace(whole, train_classes=classes, validation_classes=(), directory=str(tmp_path / "part"))
    images = ImageCounts(train=(12,) * 8, validation=(12,) * 2)
    (found,) = measured_costs([part], images, threads=1, gpu=False, seconds=0)
    assert found.steps == record["batches"]
    assert found.epoch == found.step * found.steps + found.validation
    assert min(found.step, found.validation) > 0
    assert found.memory > 50_000_000, "PyTorch alone takes more"
    assert found.device_memory is None
    (unvalidated,) = measured_costs([part], replace(images, validation=()), threads=1, gpu=False, seconds=0)
    assert unvalidated.validation == 0


def test_the_step_of_a_fine_tuning_is_that_of_its_last_epochs(
    whole: TrialSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backbone learns, although the first epoch would train the head alone."""
    learning = []
    step = Training.step

    def watched(training: Training, images: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        learning.append(all(parameter.requires_grad for parameter in training.model.parameters()))
        return step(training, images, labels_B)

    monkeypatch.setattr(Training, "step", watched)
    settings = {"warmup_epochs": 1}
    spec = replace(whole, training=replace(whole.training, **settings), validation_classes=())
    images = ImageCounts(train=(12,) * 8, validation=(12,) * 2)
    (found,) = measured_costs([spec], images, threads=1, gpu=False, seconds=0)
    assert found.step > 0
    assert learning
    assert all(learning)
