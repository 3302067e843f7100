"""A copy of a state equals it and does not change while the training continues."""

from collections import Counter
from typing import Any

import torch
from torch import nn

from trainables.training.state_copy import StateCopy


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    module = nn.Sequential(nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), nn.BatchNorm2d(4))
    optimizer = torch.optim.AdamW(module.parameters())
    train_on(module, optimizer)
    return module, optimizer


def train_on(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    module(torch.rand(2, 3, 5, 5)).sigmoid().mul(torch.rand(2, 4, 3, 3)).sum().backward()
    optimizer.step()


def state_of(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {
        "model": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "milestones": Counter([2, 2]),
        "best": 0.5,
    }


def test_it_is_equal_and_does_not_follow_the_training() -> None:
    module, optimizer = trained()
    state = state_of(module, optimizer)
    copy = StateCopy().take(state)
    expected = {name: value.clone() for name, value in state["model"].items()}
    moments = [entry["exp_avg"].clone() for entry in state["optimizer"]["state"].values()]
    train_on(module, optimizer)
    optimizer.param_groups[0]["lr"] = 7.0
    state["milestones"][2] += 1
    for name, value in expected.items():
        assert torch.equal(copy["model"][name], value), name
        assert copy["model"][name].stride() == value.stride()
        assert not torch.equal(copy["model"][name], state["model"][name])
    for entry, moment in zip(copy["optimizer"]["state"].values(), moments, strict=True):
        assert torch.equal(entry["exp_avg"], moment)
    assert copy["optimizer"]["param_groups"][0]["lr"] == 1e-3
    assert copy["milestones"] == Counter([2, 2])
    assert type(copy["model"]) is type(state["model"])
    assert copy["model"]._metadata == state["model"]._metadata  # the modules' versions, for load_state_dict


def test_the_next_copy_takes_the_same_memory() -> None:
    module, optimizer = trained()
    copies = StateCopy()
    first = copies.take(state_of(module, optimizer))
    train_on(module, optimizer)
    second = copies.take(state_of(module, optimizer))
    for name, value in module.state_dict().items():
        assert first["model"][name].data_ptr() == second["model"][name].data_ptr()
        assert torch.equal(second["model"][name], value)


def test_a_state_may_grow_and_change_its_shapes() -> None:
    copies = StateCopy()
    for count, size in ((1, 3), (3, 3), (3, 2), (2, 2)):
        state = [torch.full((size, number + 1), float(number)) for number in range(count)]
        copy = copies.take(state)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(copy, state, strict=True))


def test_a_tensor_in_two_parts_is_copied_once() -> None:
    weights = {"weight": torch.ones(3)}
    last, best = StateCopy().take(({"model": weights, "epoch": 1}, {"model": weights}))
    assert last["model"]["weight"] is best["model"]["weight"]
    assert last["model"]["weight"] is not weights["weight"]
