"""Adam and AdamW equal torch's bit for bit, although they omit torch's wrappers."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import MultiStepLR

from trainables.training.config import OPTIMIZERS

THEIRS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def trained(optimizer: type[torch.optim.Optimizer]) -> list[torch.Tensor]:
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
    pairs = zip(trained(OPTIMIZERS[name]), trained(THEIRS[name]), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
