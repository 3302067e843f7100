"""Checks around each test on the simulated GPU, and trainings compared with a CPU's."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.gpu_training import CPU, GPU, images as images
from support.simulated_gpu.streams import FREED_TOO_EARLY, STATE

from spaces.losses import SPACES
from trainables.data.store import view
from trainables.training.spec import TrialSpec
from trainables.training.train import Training


@pytest.fixture(autouse=True)
def nothing_is_freed_too_early() -> Iterator[None]:
    view._resident.clear()
    FREED_TOO_EARLY.clear()
    yield
    assert not FREED_TOO_EARLY, "memory was freed while another stream could still use it"


@pytest.fixture
def gpu_of() -> Iterator[Any]:
    before = dict(vars(STATE))

    def change(**changes: Any) -> None:
        vars(STATE).update(changes)

    yield change
    vars(STATE).update({name: before[name] for name in ("limit", "capability", "debug")})


# Trainings, compared with the same ones on the CPU.

CHOICES = [
    (loss, {name: choice})
    for loss, space in SPACES.items()
    for name, parameter in space.items()
    for choice in getattr(parameter, "choices", ())
    if choice != parameter.default
]
"""Losses with one of their choices that is not the default."""


def trained(spec: TrialSpec, device: torch.device) -> Training:
    training = Training(replace(spec, directory=f"{spec.directory}-{device.type}"), device)
    while not training.finished:
        training.run_epoch()
    return training


def assert_as_on_cpu(spec: TrialSpec, tolerance: float = 1e-3) -> None:
    ours, theirs = trained(spec, GPU), trained(spec, CPU)
    assert {p.device.type for p in (*ours.model.parameters(), *ours.loss.parameters())} == {"cuda"}
    for record, other in zip(ours.records, theirs.records, strict=True):
        assert record["loss"] == pytest.approx(other["loss"], rel=tolerance, abs=1e-5)
        assert record.get("used") == other.get("used")
