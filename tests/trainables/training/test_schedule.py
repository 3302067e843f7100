"""Learning rates and optimizers equal torch's step by step."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from support.small_training import small_spec, with_training
from torch import nn
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR, LRScheduler, MultiStepLR

from trainables.data.store.store_spec import StoreSpec
from trainables.training.train import Training
from trainables.training.training_config import OPTIMIZERS, Schedule

CPU = torch.device("cpu")
EPOCHS, STEPS = 6, 5
LR = 3e-3


def rates(schedule: Schedule, epochs: int = EPOCHS) -> list[float]:
    return [
        schedule.rate(LR, epoch=epoch, step=step, steps=STEPS, epochs=epochs)
        for epoch in range(1, EPOCHS + 1)
        for step in range(STEPS)
    ]


def theirs(make: Any) -> list[float]:
    """Return the rates of torch's scheduler ``make(optimizer)``, stepped after every step."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    scheduler: LRScheduler = make(optimizer)
    found = []
    for _ in range(EPOCHS * STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


ALL = EPOCHS * STEPS
PAIRS: dict[str, tuple[Schedule, Any]] = {
    "constant": (Schedule(), lambda o: ConstantLR(o, factor=1.0)),
    "steps": (Schedule(step=2, gamma=0.3), lambda o: MultiStepLR(o, [2 * STEPS, 4 * STEPS], 0.3)),
    "milestones": (Schedule(milestones=(1, 5), gamma=0.3), lambda o: MultiStepLR(o, [STEPS, 5 * STEPS], 0.3)),
    "cosine": (Schedule(decay="cosine"), lambda o: CosineAnnealingLR(o, ALL)),
    "linear": (Schedule(decay="linear"), lambda o: LinearLR(o, 1.0, 0.0, total_iters=ALL)),
}


@pytest.mark.parametrize(("schedule", "make"), PAIRS.values(), ids=PAIRS)
def test_rates_are_torch_s(schedule: Schedule, make: Any) -> None:
    expected = theirs(make)
    assert rates(schedule) == (pytest.approx(expected, rel=1e-9, abs=1e-15) if schedule.decay else expected)


# A training takes these rates.


@pytest.mark.parametrize("schedule_epochs", [None, 3])
def test_every_step_has_its_rate_after_a_resumption_too(
    schedule_epochs: int | None, images: StoreSpec, tmp_path: Path
) -> None:
    """Final trainings on all classes end after the best epoch, with the first rates of a longer one."""
    spec = small_spec(images, tmp_path, epochs=2, schedule_epochs=schedule_epochs)
    spec = with_training(spec, batch_size=10, schedule=Schedule(decay="cosine"))
    found: list[list[float]] = []
    for _ in range(2):
        training = Training(spec, CPU)
        groups = training.optimizer.param_groups
        training.loss.register_forward_pre_hook(lambda *_, of=groups: found.append([group["lr"] for group in of]))
        record = training.run_epoch()
        training.wait_for_checkpoints()
    assert len(found) == 2 * record["batches"] > 4
    for number, base in enumerate(training._base_rates):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
        scheduler = CosineAnnealingLR(optimizer, (schedule_epochs or 2) * record["batches"])
        for rates_of_step in found:
            assert rates_of_step[number] == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
            optimizer.step()
            scheduler.step()


# Optimizers, which omit torch's wrappers.

THEIRS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def weights_by(optimizer: type[torch.optim.Optimizer]) -> list[torch.Tensor]:
    """Return the weights after every step; the optimizer's state is saved and loaded half-way."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.01}]
    ours = optimizer(groups, weight_decay=0.2)  # type: ignore[call-arg]
    schedule = MultiStepLR(ours, [2, 5], 0.5)
    weights = []
    for step in range(8):
        if step == 4:
            state = copy.deepcopy(ours.state_dict())
            ours.load_state_dict(state)
        ours.zero_grad(set_to_none=True)
        model(torch.randn(6, 5)).square().mean().backward()
        ours.step()
        schedule.step()
        weights += [parameter.detach().clone() for parameter in model.parameters()]
    assert all(parameter.requires_grad for parameter in model.parameters())
    return weights


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_step_is_torch_s(name: str) -> None:
    assert issubclass(OPTIMIZERS[name], THEIRS[name])
    pairs = zip(weights_by(OPTIMIZERS[name]), weights_by(THEIRS[name]), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
