"""Trainings in a stack fail, end, resume and warm up independently."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.stacks import CPU, alone, assert_same, member, records_of

from trainables.data.store.spec import StoreSpec
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training.config import Schedule, TrainingConfig
from trainables.training.epoch_training import Diverged
from trainables.training.stack import run_epochs, stack_key, why_not_stacked
from trainables.training.stack.together import embedded_together
from trainables.training.train import Training

pytestmark = pytest.mark.usefixtures("exact")


def test_a_member_that_diverges_touches_no_other(images: StoreSpec, tmp_path: Path) -> None:
    specs = [member(images, tmp_path, number) for number in range(3)]
    specs[1] = replace(specs[1], training=replace(specs[1].training, lr=1e300))
    trainings = [Training(spec, CPU) for spec in specs]
    results = run_epochs(trainings)
    assert isinstance(results[1], Diverged)
    with pytest.raises(Diverged) as said:
        alone(specs[1], 1)
    assert str(results[1]) == str(said.value)
    assert trainings[1].records == []
    for number in (0, 2):
        assert_same(trainings[number], alone(specs[number], 1))


def test_members_leave_and_join_at_any_epoch(images: StoreSpec, tmp_path: Path) -> None:
    """One is pruned after an epoch; a resumed one replaces it, two epochs ahead of another."""
    specs = [
        member(images, tmp_path, number, training={"schedule": Schedule(step=1, gamma=0.5)}) for number in range(4)
    ]
    first, pruned = (Training(spec, CPU) for spec in specs[:2])
    records_of(run_epochs([first, pruned]))
    before = Training(specs[2], CPU)
    records_of(run_epochs([before, Training(specs[3], CPU)]))
    before.run_epoch()
    before.wait_for_checkpoints()
    resumed = Training(specs[2], CPU)
    assert len(resumed.records) == 2
    fresh = Training(replace(specs[3], directory=str(tmp_path / "fresh")), CPU)
    records_of(run_epochs([fresh, resumed, first]))
    assert resumed.finished
    assert_same(first, alone(specs[0], 2))
    for training, epochs, spec in ((resumed, 3, specs[2]), (fresh, 1, specs[3])):
        reference = alone(spec, epochs)
        for record in (*training.records, *reference.records):
            record["checkpoint"] = None  # differs by attempt
        assert_same(training, reference)


def test_a_checkpoint_of_a_stack_is_one_of_a_training(images: StoreSpec, tmp_path: Path) -> None:
    """A member resumes outside of the stack."""
    specs = [member(images, tmp_path, number) for number in range(2)]
    stack = [Training(spec, CPU) for spec in specs]
    records_of(run_epochs(stack))
    for training in stack:
        training.wait_for_checkpoints()
    for spec in specs:
        resumed = Training(spec, CPU)
        assert len(resumed.records) == 1
        resumed.run_epoch()
        reference = alone(spec, 2)
        resumed.records[1]["checkpoint"] = reference.records[1]["checkpoint"]  # differs by attempt
        assert_same(resumed, reference)


def test_members_warm_up_for_themselves(images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two of four freeze their backbone in the first epoch, and one of them in the second too."""
    warmups = (0, 1, 0, 2)
    specs = [
        member(images, tmp_path, number, training={"warmup_epochs": epochs}) for number, epochs in enumerate(warmups)
    ]
    trainings = [Training(spec, CPU) for spec in specs]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            records_of(run_epochs(trainings))
    assert not caplog.records
    for training in trainings:
        assert_same(training, alone(training.spec, 3))


def test_members_take_up_their_memory_for_themselves(
    images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of three members is an epoch behind the others, which remember already."""
    settings = {"cross_batch_memory": 1.0, "memory_warmup_epochs": 1}
    specs = [
        member(images, tmp_path, number, loss="contrastive", hyperparameters={}, training=settings)
        for number in range(3)
    ]
    trainings = [Training(spec, CPU) for spec in specs]
    with caplog.at_level(logging.WARNING):
        records_of(run_epochs(trainings[:2]))
        records_of(run_epochs(trainings))
        records_of(run_epochs(trainings[1:]))
    assert not caplog.records
    for training, epochs in zip(trainings, (2, 3, 2), strict=True):
        assert_same(training, alone(training.spec, epochs))


@pytest.mark.parametrize(("loss", "failing"), [("Listing", None), ("NotSquared", 1)])
def test_a_stack_that_fails_goes_on_in_halves(
    images: StoreSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture, loss: str, failing: int | None
) -> None:
    """Only the member that causes the error fails; the log says why the stack was split."""
    powers = (0.5, 2.0, 1.0)
    specs = [
        member(images, tmp_path, number, loss=f"support.own_parts:{loss}", hyperparameters={"power": power})
        for number, power in enumerate(powers)
    ]
    trainings = [Training(spec, CPU) for spec in specs]
    with caplog.at_level(logging.WARNING):
        results = run_epochs(trainings)
    assert "A stack of 3 trainings failed" in caplog.messages[0]
    for number, (training, result) in enumerate(zip(trainings, results)):
        if number == failing:
            assert str(result) == "the power is 2"
        else:
            assert_same(training, alone(training.spec, 1))


def test_validation_images_are_embedded_together_as_apart(images: StoreSpec, tmp_path: Path) -> None:
    """This is the GPU path: validation images, and further gallery images."""
    specs = [member(images, tmp_path, number, gallery_seed=3) for number in range(3)]
    trainings = [Training(spec, CPU) for spec in specs]
    for training, (queries_ND, gallery_ND) in zip(trainings, embedded_together(trainings)):
        apart = [training._embed(view) for view in training.validated_views]
        assert [len(part) for part in apart] == [20, 20]
        torch.testing.assert_close([queries_ND, gallery_ND], apart)


def test_one_training_is_no_stack(images: StoreSpec, tmp_path: Path) -> None:
    """It equals the training outside of a stack bit for bit."""
    spec = member(images, tmp_path, 0)
    training = Training(spec, CPU)
    records_of(run_epochs([training]))
    reference = alone(spec, 1)
    for name, value in training.model.state_dict().items():
        assert torch.equal(value, reference.model.state_dict()[name]), name


OWN_VALUES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 99},
    "learning rates": {"training": {"lr": 0.5, "head_lr": 0.1, "proxy_lr": 0.2}},
    "decay and bound": {"training": {"weight_decay": 0.5, "clip_grad": None}},
    "epochs": {"training": {"epochs": 9, "warmup_epochs": 2, "schedule": Schedule(step=2)}},
    "a real hyperparameter": {"hyperparameters": {"proxies_per_class": 2, "margin": 0.7}},
}
SHARED: dict[str, dict[str, Any]] = {
    "the loss": {"loss": "mpa_dw"},
    "a whole hyperparameter": {"hyperparameters": {"proxies_per_class": 3, "margin": 0.5}},
    "a hyperparameter's name": {"hyperparameters": {"proxies_per_class": 2, "scale": 0.5}},
    "the network": {"model": ModelConfig(embedding_dim=9)},
    "the batches": {"training": {"batch_size": 10}},
    "the optimiser": {"training": {"optimizer": "adam"}},
    "merged classes": {"merge": 2},
    "wrong labels": {"label_noise": 0.2},
    "which labels are wrong": {"noise_seed": 1},
}


def changed(spec: TrialSpec, changes: dict[str, Any]) -> TrialSpec:
    training = replace(spec.training, **changes.get("training", {}))
    return replace(spec, **{**changes, "training": training})


@pytest.mark.parametrize("changes", OWN_VALUES.values(), ids=OWN_VALUES)
def test_what_a_member_may_have_of_its_own(images: StoreSpec, tmp_path: Path, changes: dict[str, Any]) -> None:
    spec = member(images, tmp_path, 0, hyperparameters={"proxies_per_class": 2, "margin": 0.5})
    assert stack_key(spec) == stack_key(changed(spec, changes)) is not None


@pytest.mark.parametrize("changes", SHARED.values(), ids=SHARED)
def test_what_members_share(images: StoreSpec, tmp_path: Path, changes: dict[str, Any]) -> None:
    spec = member(images, tmp_path, 0, hyperparameters={"proxies_per_class": 2, "margin": 0.5})
    assert stack_key(spec) != stack_key(changed(spec, changes))


def test_what_is_not_known_of_a_part_is_said(images: StoreSpec, tmp_path: Path) -> None:
    known: dict[str, Any] = {"loss": "mpa", "model": ModelConfig(), "training": TrainingConfig()}
    assert why_not_stacked(**known) is None
    vit, dropout = ModelConfig(backbone="timm:vit"), ModelConfig(head="mlp", head_dropout=0.5)
    others = [
        ("loss", "mylab:Loss", "mylab:Loss"),
        ("training", TrainingConfig(sampler="mylab:Sampler"), "mylab:Sampler"),
    ]
    for part, other, name in (*others, ("model", vit, "timm:vit"), ("model", dropout, "model.head_dropout is 0.5")):
        said = why_not_stacked(**{**known, part: other})
        assert said is not None
        assert name in said
    spec = member(images, tmp_path, 0)
    folds = replace(spec, folds=(spec.train_classes[:2], spec.train_classes[2:]))
    assert stack_key(folds) is None
    assert "2 folds" in str(why_not_stacked(**known, folds=2))
